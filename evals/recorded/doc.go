// Package recorded reads recorded agent runs, in the forms in which people keep them: OpenAI chat messages, Anthropic
// content blocks, Claude Code's session files, and the result files of tau-bench, tau2-bench, AgentDojo and LiveMCPBench.
//
// Start with [Files]: it yields one [Run] after the other and holds one at a time, however many a file has. A run that
// cannot be read is an error of its own and does not end the reading.
//
// Runs are other people's text, some of it written to mislead whoever reads it. Nothing in them is followed: they are
// bounded in size, depth and number, and only taken apart.
package recorded
