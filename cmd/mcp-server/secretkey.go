package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"toolguard.dev/toolguard"
)

// keyFile is the name of the file, in the ledger's folder, with the key that secrets are sealed with.
const keyFile = "secret.key"

// sealOf returns what keeps the secrets of the ledger in dir: with the key in its file, which is made where secrets are
// declared and none was ever sealed; nil where there is neither a key nor a need for one. A key that is lost or open to
// others keeps only the tools with secrets from being called.
func sealOf(ctx context.Context, store toolguard.Store, dir string, declared bool) (seal *toolguard.Seal, made bool, err error) {
	path := filepath.Join(dir, keyFile)
	key, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		sealed, failed := toolguard.Sealed(ctx, store)
		switch {
		case failed != nil:
			return nil, false, failed
		case sealed:
			return toolguard.LostSeal(fmt.Errorf("%s, with which secrets in this ledger are sealed, is not there", path)), false, nil
		case !declared:
			return nil, false, nil
		}
		made, err = makeKey(dir)
		if err != nil {
			return nil, false, fmt.Errorf("the key for secrets could not be made: %w", err)
		}
		key, err = readKey(path)
	}
	if err != nil {
		return toolguard.LostSeal(err), made, nil
	}
	seal, err = toolguard.NewSeal(key)
	return seal, made, err
}

// readKey reads a key file, which nobody else may be able to read.
func readKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s is open to others (mode %04o): make it yours alone with chmod 600", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, 2*toolguard.SealKeySize+8))
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != toolguard.SealKeySize {
		return nil, fmt.Errorf("%s is no key: it has to hold %d hex digits", path, 2*toolguard.SealKeySize)
	}
	return key, nil
}

// makeKey makes a key file, whole or not at all. made: it is this process's, not another's that was faster.
func makeKey(dir string) (made bool, err error) {
	f, err := os.CreateTemp(dir, keyFile+".") // mode 0600
	if err != nil {
		return false, err
	}
	defer os.Remove(f.Name())
	var key [toolguard.SealKeySize]byte
	_, _ = rand.Read(key[:]) // never fails
	_, err = fmt.Fprintf(f, "%x\n", key)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, err
	}
	err = os.Link(f.Name(), filepath.Join(dir, keyFile))
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return true, err
	}
	return true, errors.Join(d.Sync(), d.Close())
}
