//! placeholder

pub mod launch;
pub mod sandbox;
mod sys;
