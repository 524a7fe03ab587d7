use super::Tool;
pub(super) const TOOLS: &[Tool] = &[];
