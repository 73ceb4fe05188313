package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolguard.dev/cmd/mcp-server/config"
)

const configName = "toolguard.yaml"

// findConfig is the file that --config, $TOOLGUARD_CONFIG, the working folder or the user's config folder names.
func (p *program) findConfig() (string, error) {
	if p.config != "" {
		return p.config, nil
	}
	if path, _ := p.env("TOOLGUARD_CONFIG"); path != "" {
		return path, nil
	}
	tried := []string{configName}
	if dir, err := os.UserConfigDir(); err == nil {
		tried = append(tried, filepath.Join(dir, "toolguard", configName))
	}
	for i, path := range tried {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", usage{fmt.Errorf("configuration: %w", err)}
		}
		if abs, err := filepath.Abs(path); err == nil {
			tried[i] = abs
		}
	}
	return "", noConfig(tried)
}

// noConfig says which places of a configuration were tried.
type noConfig []string

func (n noConfig) Error() string {
	return "no configuration: --config is not given, $TOOLGUARD_CONFIG is not set, there is no " + strings.Join(n, ", and no ")
}

// load reads the configuration.
func (p *program) load() (*config.Config, error) {
	path, err := p.findConfig()
	if none, ok := errors.AsType[noConfig](err); ok {
		return nil, usage{fmt.Errorf("%w; mcp-server init writes one", none)}
	}
	if err != nil {
		return nil, err
	}
	c, err := config.Load(path, p.env)
	if err != nil {
		return nil, usage{err}
	}
	return c, nil
}

// ledgerOf is the folder of the ledger that belongs to a configuration: --data, its store, or one in the state folder.
func (p *program) ledgerOf(file, store string) (string, error) {
	if p.data != "" {
		return filepath.Abs(p.data)
	}
	if store != "" {
		return filepath.Abs(store)
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	return p.stateFolder(filepath.Base(filepath.Dir(abs)), abs)
}

// findLedger is the folder of the ledger for commands that only need that.
func (p *program) findLedger() (string, error) {
	if p.data != "" {
		return filepath.Abs(p.data)
	}
	path, err := p.findConfig()
	if none, ok := errors.AsType[noConfig](err); ok {
		return "", usage{fmt.Errorf("%w; %s", none, p.ledgersToName())}
	}
	if err != nil {
		return "", err
	}
	store, err := config.LedgerOf(path, p.env)
	if err != nil {
		return "", usage{err}
	}
	return p.ledgerOf(path, store)
}

// stateFolder is a folder of its own for an identity, in the user's state folder, with a name that people recognise.
func (p *program) stateFolder(name string, identity ...string) (string, error) {
	ledgers, err := p.stateLedgers()
	if err != nil {
		return "", usage{fmt.Errorf("no folder for the ledger: %w; name one with --data", err)}
	}
	sum := sha256.Sum256([]byte(strings.Join(identity, "\x00")))
	return filepath.Join(ledgers, readable(name)+"-"+hex.EncodeToString(sum[:6])), nil
}

// launchers are programs that run another one, which their first argument names.
var launchers = []string{"npx", "bunx", "uvx", "node", "bun", "python", "python3"}

// wrappedName is what people recognise a wrapped command by: with a launcher, the package or script that it runs. Of other
// commands it is the command alone, whose arguments may be secret.
func wrappedName(command []string) string {
	name := filepath.Base(command[0])
	if !slices.Contains(launchers, name) {
		return name
	}
	for _, arg := range command[1:] {
		if !strings.HasPrefix(arg, "-") {
			path := strings.Split(filepath.ToSlash(arg), "/")
			return strings.Join(path[max(0, len(path)-3):], "-")
		}
	}
	return name
}

// stateLedgers is the folder in the user's state folder that holds the ledgers nobody chose a place for.
func (p *program) stateLedgers() (string, error) {
	state, _ := p.env("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // also when it is not set; the XDG rules have relative ones ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "toolguard"), nil
}

// readable makes a name fit for a folder.
func readable(name string) string {
	name = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, name), "-.")
	if len(name) > 40 {
		name = name[:40]
	}
	if name == "" {
		return "ledger"
	}
	return name
}
