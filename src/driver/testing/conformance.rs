//! Named checks for any driver. To come.
