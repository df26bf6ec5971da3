-- A user's latest events are found without reading everybody's.
CREATE INDEX events_by_user ON events(user_id, id);
