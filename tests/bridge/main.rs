//! The contract, sentence by sentence, against the real programs and a real relay over real HTTP.
//!
//! One binary for all of it, so that it is linked once; one module a subject.

mod sign_and_resubmit;
