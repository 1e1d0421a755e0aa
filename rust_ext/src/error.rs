//! The one error type of the core.
//!
//! Messages carry numbers and kinds, never text of a document: they end up in logs.

use thiserror::Error;

/// What can go wrong in the core; `py::mod` maps each kind to one Python exception.
#[derive(Debug, Error)]
pub enum Error {
    /// The documents cannot be used as they are. → `CorpusError`
    #[error("{0}")]
    Corpus(String),
    /// A setting is out of range or contradicts another. → `PolicyError`
    #[error("{0}")]
    Policy(String),
    /// Something on disk or made earlier does not fit. → `ArtifactError`
    #[error("{0}")]
    Artifact(String),
    /// The system has no memory left, or no threads. → `MemoryError`
    #[error("{0}")]
    Memory(String),
    /// A file cannot be written or read. → `OSError`
    #[error(transparent)]
    File(#[from] std::io::Error),
}

pub type Result<T> = std::result::Result<T, Error>;
