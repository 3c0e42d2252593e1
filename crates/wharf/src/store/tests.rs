//! What a log shows when somebody was at it.
