//! What the source tree and the built programs are made of.
