//! Every finding the validator can make, in one table: its name, the level it
//! belongs to, how grave it is and how to mend it.
//!
//! The table is the only place where these facts stand, so that the report, the
//! JSON output and the tests cannot come to differ.

/// The depth at which a fault was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Presence and types of fields.
    Schema,
    /// Meaning of one message.
    Semantic,
    /// Agreement between messages.
    Session,
    /// Quality of the data.
    Integrity,
}

impl Level {
    /// From 1 (schema) to 4 (integrity).
    pub fn number(self) -> u8 {
        match self {
            Self::Schema => 1,
            Self::Semantic => 2,
            Self::Session => 3,
            Self::Integrity => 4,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Semantic => "semantic",
            Self::Session => "session",
            Self::Integrity => "integrity",
        }
    }
}

/// Whether a finding makes a file invalid by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    Error,
    Warning,
}

macro_rules! codes {
    ($($variant:ident $name:literal $level:ident $severity:ident $hint:literal)*) => {
        /// What is wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $hint] $variant,)*
        }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name that reports and scripts use.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            pub fn level(self) -> Level {
                match self { $(Self::$variant => Level::$level,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// One sentence on how to mend it.
            pub fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint,)* }
            }
        }
    };
}

codes! {
    InvalidJson "INVALID_JSON" Schema Error
        "Write one complete JSON object in UTF-8 per line, and nothing after it."
    NotAnObject "NOT_AN_OBJECT" Schema Error
        "Make the line a JSON object; lists and bare values are not messages."
    LineTooLong "LINE_TOO_LONG" Schema Error
        "Keep the line below the limit, for instance by storing large attachments elsewhere."
    DuplicateField "DUPLICATE_FIELD" Schema Error
        "Write each key once; of two values one reader takes the first and another the last."
    MissingField "MISSING_FIELD" Schema Error
        "Add the required field."
    InvalidFieldType "INVALID_FIELD_TYPE" Schema Error
        "Write the field with the JSON type that the format asks for."
    EmptyField "EMPTY_FIELD" Schema Error
        "Give the field a value; an empty string identifies nothing."
    InvalidMessageType "INVALID_MESSAGE_TYPE" Schema Error
        "Use \"user\", \"assistant\" or \"meta\" as the type."
    InvalidContent "INVALID_CONTENT" Schema Error
        "Make message.content a string or an array of content blocks."
    InvalidContentBlock "INVALID_CONTENT_BLOCK" Schema Error
        "Give the block a string type, and put only text and image blocks into a tool result."
    UnknownBlockType "UNKNOWN_BLOCK_TYPE" Schema Error
        "Use text, thinking, tool_use, tool_result or image, spelt exactly so."
    InvalidUsage "INVALID_USAGE" Schema Error
        "Write usage as an object whose token counts are whole numbers of zero or more."

    InvalidTimestampFormat "INVALID_TIMESTAMP_FORMAT" Semantic Error
        "Write the time as RFC 3339, for instance 2025-11-06T09:30:00Z."
    InvalidRole "INVALID_ROLE" Semantic Error
        "Use \"user\" or \"assistant\" as the role; meta messages may use any name but the empty one."
    RoleTypeMismatch "ROLE_TYPE_MISMATCH" Semantic Error
        "Make message.role agree with the type of the line."
    InvalidToolResultMessageType "INVALID_TOOL_RESULT_MESSAGE_TYPE" Semantic Error
        "Move the tool_result block into a message of type user."
    InvalidToolUseMessageType "INVALID_TOOL_USE_MESSAGE_TYPE" Semantic Error
        "Move the tool_use block into a message of type assistant."
    EmptyToolUseId "EMPTY_TOOL_USE_ID" Semantic Error
        "Give the call an id, so that its result can refer to it."
    EmptyToolUseName "EMPTY_TOOL_USE_NAME" Semantic Error
        "Name the tool that is called."
    EmptyToolResultId "EMPTY_TOOL_RESULT_ID" Semantic Error
        "Repeat the id of the call that this result answers."
    EmptyToolResultContent "EMPTY_TOOL_RESULT_CONTENT" Semantic Error
        "Write what the tool gave back; say so in words when it gave back nothing."

    OrphanToolResult "ORPHAN_TOOL_RESULT" Session Error
        "Write the assistant message with the call before its result, in the same session."
    DuplicateUuid "DUPLICATE_UUID" Session Error
        "Give every message its own uuid."
    OwnParent "OWN_PARENT" Session Error
        "Point parentUuid to the message before, or leave it out."
    DuplicateToolUseId "DUPLICATE_TOOL_USE_ID" Session Warning
        "Give every call its own id, or results cannot be told apart."
    DuplicateToolResult "DUPLICATE_TOOL_RESULT" Session Warning
        "Write one result per call."
    TimestampOutOfOrder "TIMESTAMP_OUT_OF_ORDER" Session Warning
        "Sort the messages by time before writing them."
    LargeTimeGap "LARGE_TIME_GAP" Session Warning
        "Check the clock of the writer; if the session was resumed, set \"resumed\": true in providerMetadata."
    TimestampInFuture "TIMESTAMP_IN_FUTURE" Session Warning
        "Check the clock and the time zone of the writer."
    TimestampTooOld "TIMESTAMP_TOO_OLD" Session Warning
        "Check the unit of the time; seconds taken for milliseconds end in 1970."
    ParentNotFound "PARENT_NOT_FOUND" Session Warning
        "Point parentUuid to a message of this file, or leave it out."
    ParentAfterChild "PARENT_AFTER_CHILD" Session Warning
        "Write a message after the one it answers."
    MixedSessions "MIXED_SESSIONS" Session Warning
        "Write one file per session."
    MixedProviders "MIXED_PROVIDERS" Session Warning
        "Write one provider per file."
    EmptyFile "EMPTY_FILE" Session Warning
        "Check that the writer finished; a session has at least one message."
    ByteOrderMark "BYTE_ORDER_MARK" Session Warning
        "Save the file as UTF-8 without a byte order mark."

    DuplicateContentInMetadata "DUPLICATE_CONTENT_IN_METADATA" Integrity Warning
        "Keep flags and ids in providerMetadata, not the text of the message."
    LargeMetadata "LARGE_METADATA" Integrity Warning
        "Keep providerMetadata small; what belongs to the message goes into message.content."
    StringifiedToolInput "STRINGIFIED_TOOL_INPUT" Integrity Warning
        "Decode the arguments and write them as a JSON object."
    ThinkingInUserMessage "THINKING_IN_USER_MESSAGE" Integrity Warning
        "Write thinking blocks into assistant messages."
}
