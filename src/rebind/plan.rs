//! To come: from slots and buffers to a layout.
