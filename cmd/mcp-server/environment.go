package main

import (
	"slices"
	"strings"
)

// safeNames are the environment variables that every child has: what programs need to find their way about, and no
// secrets. A name that ends in * stands for all that begin so.
var safeNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TMP", "TEMP", "XDG_*",
	// Windows
	"APPDATA", "LOCALAPPDATA", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "USERNAME", "PATHEXT", "COMSPEC",
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROCESSOR_ARCHITECTURE",
}

// hostSecrets are variables in which the programs that run agents keep their own keys. A wrapped server gets everything
// but these and our own settings.
var hostSecrets = []string{
	"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_SESSION_ACCESS_TOKEN",
	"OPENAI_API_KEY", "CODEX_API_KEY", "CURSOR_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "COPILOT_GITHUB_TOKEN",
}

// entryEnvironment is the environment of a server from mcpServers: the safe names, and what its entry says.
func entryEnvironment(ours, entry []string) []string {
	return override(slices.DeleteFunc(slices.Clone(ours), func(s string) bool {
		name := strings.ToUpper(variable(s))
		return !slices.ContainsFunc(safeNames, func(safe string) bool {
			prefix, many := strings.CutSuffix(safe, "*")
			return name == safe || many && strings.HasPrefix(name, prefix)
		})
	}), entry)
}

// wrappedEnvironment is the environment of a wrapped server: ours, without our settings and the host's own keys,
// unless a key is named in pass.
func wrappedEnvironment(ours, pass []string) []string {
	return slices.DeleteFunc(slices.Clone(ours), func(s string) bool {
		name := variable(s)
		return !slices.Contains(pass, name) && (strings.HasPrefix(name, "TOOLGUARD_") || slices.Contains(hostSecrets, name))
	})
}

// override adds entries, which take the place of earlier ones of the same name.
func override(list, entries []string) []string {
	list = slices.DeleteFunc(list, func(s string) bool {
		return slices.ContainsFunc(entries, func(e string) bool { return variable(e) == variable(s) })
	})
	return append(list, entries...)
}

func variable(s string) string {
	name, _, _ := strings.Cut(s, "=")
	return name
}
