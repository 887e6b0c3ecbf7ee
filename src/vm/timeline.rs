//! Points in streams: a clock for each stream, and marks that are recorded only when somebody needs them.

use crate::driver::Stream;
use crate::error::Result;

/// A point in a stream: everything that was enqueued before the mark was asked for. Nothing is enqueued for it
/// until it is recorded, and marks of one stream that are recorded together cost one timeline write; a mark
/// recorded late passes late, never early. A stream must live until it is forgotten or its marks have passed.
#[derive(Debug)]
pub struct Mark {
    stream: Stream,
}

impl Mark {
    /// The stream it is a point of.
    pub const fn stream(&self) -> Stream {
        self.stream
    }

    /// True once it has been recorded.
    pub fn is_recorded(&self) -> bool {
        todo!()
    }

    /// Enqueues it, unless that was done.
    ///
    /// # Errors
    /// `StreamCapturing` while the stream is captured (try again later; the mark stays good), `WrongState` after
    /// the device was closed, and the driver's.
    pub fn record(&self) -> Result<()> {
        todo!()
    }

    /// True once the stream has passed it; false while it is unrecorded. Never blocks.
    ///
    /// # Errors
    /// The driver's.
    pub fn passed(&self) -> Result<bool> {
        todo!()
    }

    /// Records it where needed and blocks the calling thread until the stream has passed it.
    ///
    /// # Errors
    /// As [`Self::record`], and what stopped the stream.
    pub fn wait(&self) -> Result<()> {
        todo!()
    }

    /// Makes `stream` wait for it, on the device; the same stream needs no wait, and nothing is enqueued then.
    ///
    /// # Errors
    /// As [`Self::record`], for either stream.
    pub fn wait_on(&self, stream: Stream) -> Result<()> {
        let _ = stream;
        todo!()
    }
}
