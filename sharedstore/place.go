package sharedstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const (
	socketName = "toolguard.sock"
	socketFile = "SOCKET" // names the socket where it cannot be in the folder itself
	maxAddress = 100      // bytes of a socket's path that every system takes; the smallest limit is 104, with a zero
)

// address is the path of the socket of the ledger in dir, as its owner has left it.
func address(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, socketFile))
	if errors.Is(err, fs.ErrNotExist) {
		return filepath.Join(dir, socketName), nil
	}
	return strings.TrimSuffix(string(text), "\n"), err
}

// settle chooses the path of the socket and leaves it where the others find it. Only the owner does.
func settle(dir string) (string, error) {
	file := filepath.Join(dir, socketFile)
	path := filepath.Join(dir, socketName)
	if len(path)+len(fresh) <= maxAddress {
		err := os.Remove(file)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return path, err
	}
	sum := sha256.Sum256([]byte(dir))
	name := hex.EncodeToString(sum[:8]) + ".sock"
	var reasons []error
	for _, folder := range shortFolders() {
		path := filepath.Join(folder, name)
		if len(path)+len(fresh) > maxAddress {
			continue
		}
		if err := ownFolder(folder); err != nil {
			reasons = append(reasons, err)
			continue
		}
		if err := os.WriteFile(file+fresh, []byte(path+"\n"), 0o600); err != nil {
			return "", err
		}
		return path, os.Rename(file+fresh, file)
	}
	return "", fmt.Errorf("no place for a socket: the path %s is too long: %w", path, errors.Join(reasons...))
}

// fresh ends the name of what takes its right name once it is whole.
const fresh = ".n"

func shortFolders() []string {
	var folders []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		folders = append(folders, filepath.Join(dir, "toolguard"))
	}
	own := fmt.Sprintf("toolguard-%d", os.Geteuid())
	return append(folders, filepath.Join(os.TempDir(), own), filepath.Join("/tmp", own))
}

// ownFolder makes a folder that only this user can look into, or makes sure that it is one.
func ownFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", dir)
	case !ownedByUs(info):
		return fmt.Errorf("%s belongs to another user", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to other users", dir)
	}
	return nil
}

// listen binds the socket of dir, whatever was there before. The lock of the store must be held: nobody else does it.
func listen(dir string) (net.Listener, error) {
	path, err := settle(dir)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path + fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(path+fresh, 0o600); err == nil {
		err = os.Rename(path+fresh, path) // the right name is never that of a socket which others may open
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// connect reaches the owner of the ledger in dir.
func connect(ctx context.Context, dir string) (net.Conn, error) {
	path, err := address(dir)
	if err != nil {
		return nil, err
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(c); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), c.Close())
	}
	return c, nil
}
