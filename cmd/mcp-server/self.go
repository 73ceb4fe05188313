package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// selfCommand is how others start this program: its path, or, where `go run` built it only for now, `go run` again.
func selfCommand() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if !strings.Contains(filepath.ToSlash(self), "/go-build") {
		return []string{self}, nil
	}
	if _, file, _, ok := runtime.Caller(0); ok {
		module := filepath.Dir(filepath.Dir(filepath.Dir(file)))
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return []string{"go", "-C", module, "run", "./cmd/mcp-server"}, nil
		}
	}
	return []string{self}, nil
}

// shellLine writes a command as a shell takes it.
func shellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@%+,", r))
		}) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
