-- Who answered a conversation last, where there are several: it has read it already.
ALTER TABLE conversations ADD COLUMN upstream TEXT;
