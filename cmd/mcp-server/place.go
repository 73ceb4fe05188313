package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"toolguard.dev/badgerstore"
	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/sharedstore"
	"toolguard.dev/toolguard"
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
	return "", usage{fmt.Errorf("no configuration: --config is not given, $TOOLGUARD_CONFIG is not set, there is no %s; mcp-server init writes one",
		strings.Join(tried, ", and no "))}
}

// load reads the configuration.
func (p *program) load() (*config.Config, error) {
	path, err := p.findConfig()
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
	state, _ := p.env("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // also when it is not set; the XDG rules have relative ones ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", usage{fmt.Errorf("no folder for the ledger: %w; name one with --data", err)}
		}
		state = filepath.Join(home, ".local", "state")
	}
	sum := sha256.Sum256([]byte(strings.Join(identity, "\x00")))
	return filepath.Join(state, "toolguard", readable(name)+"-"+hex.EncodeToString(sum[:6])), nil
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

// isNew tells whether a folder holds no ledger yet.
func isNew(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err != nil && errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0
}

// openLedger opens the ledger to serve from, together with the other processes that do; a new one is announced.
func (p *program) openLedger(ctx context.Context, dir string) (*sharedstore.Store, error) {
	fresh := isNew(dir)
	store, err := p.share(ctx, dir)
	if err != nil {
		return nil, err
	}
	if fresh {
		p.log().Info("new ledger", "folder", dir)
	}
	return store, nil
}

// oldLedger opens a ledger that must be there already, to look at it or to decide something.
func (p *program) oldLedger(ctx context.Context) (*sharedstore.Store, error) {
	dir, err := p.findLedger()
	if err != nil {
		return nil, err
	}
	if isNew(dir) {
		return nil, fmt.Errorf("there is no ledger in %s yet", dir)
	}
	return p.share(ctx, dir)
}

// share opens a ledger that other processes may have open, too.
func (p *program) share(ctx context.Context, dir string) (*sharedstore.Store, error) {
	return sharedstore.Open(ctx, dir, &sharedstore.Options{
		OpenOwner: func() (toolguard.Store, error) {
			s, err := badgerstore.Open(dir, &badgerstore.Options{Log: p.log()})
			if err != nil {
				return nil, err // and no store that is not nil and holds nil
			}
			return s, nil
		},
		Held: badgerstore.ErrLocked,
		Died: func(ctx context.Context, s *sharedstore.Store) error { return toolguard.Recover(ctx, s, s.Alive) },
		Log:  p.log(),
	})
}
