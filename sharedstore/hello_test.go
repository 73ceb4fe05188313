package sharedstore

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

var errHeld = errors.New("held")

func opened(t *testing.T, dir string, own func() (toolguard.Store, error)) (*Store, error) {
	t.Helper()
	s, err := Open(context.Background(), dir, &Options{OpenOwner: own, Held: errHeld, Limit: 2 * time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

// A program of another version is told so, at either end.
func TestOtherVersion(t *testing.T) {
	dir := t.TempDir()
	l, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = readHello(bufio.NewReader(c))
			_ = writeHello(c, hello{Protocol: protocol, Types: "of an older time"})
			c.Close()
		}
	}()
	_, err = opened(t, dir, func() (toolguard.Store, error) { return nil, errHeld })
	if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	t.Log(err)
}

// What does not speak the protocol is shown the door and does no harm.
func TestStrangers(t *testing.T) {
	dir := t.TempDir()
	store := storetest.NewMemory()
	s, err := opened(t, dir, func() (toolguard.Store, error) { return store, nil })
	if err != nil {
		t.Fatal(err)
	}
	good := func(c net.Conn) { _ = writeHello(c, hello{Protocol: protocol, Types: types}) }
	for name, speak := range map[string]func(c net.Conn){
		"nothing":            func(c net.Conn) { c.(*net.UnixConn).CloseWrite() },
		"another protocol":   func(c net.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") },
		"an older version":   func(c net.Conn) { _ = writeHello(c, hello{Protocol: protocol - 1, Types: types}) },
		"an endless frame":   func(c net.Conn) { good(c); c.Write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, kindCommit}) },
		"a frame of nothing": func(c net.Conn) { good(c); c.Write(make([]byte, headSize)) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := connect(context.Background(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			speak(c)
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the connection goes on: %v", err)
			}
		})
	}
	c, err := connect(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	good(c)
	r := bufio.NewReader(c)
	if h, err := readHello(r); err != nil || h.fits() != nil || h.Process != s.Process() {
		t.Fatalf("%+v, %v", h, err)
	}
	c.Write(seal(append(newFrame(7, kindCommit, 8), "damaged"...)))
	id, kind, text, err := readFrame(r, maxHello)
	if err != nil || id != 7 || kind != kindError || !strings.Contains(text, "damaged") {
		t.Errorf("a damaged request got %d %d %q %v", id, kind, text, err)
	}
	if err := s.Commit(context.Background(), &toolguard.Write{Token: "t", Operation: &toolguard.Operation{Key: "k"}}); err != nil {
		t.Error(err)
	}
}

// A folder for sockets that others could look into, or have put there, is not used.
func TestFolderOfSockets(t *testing.T) {
	dir := t.TempDir()
	wide, link := filepath.Join(dir, "wide"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(wide, 0o700), os.Chmod(wide, 0o755), os.Symlink(wide, link)); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{wide, link} {
		if ownFolder(folder) == nil {
			t.Errorf("%s is used", folder)
		}
	}
	if err := ownFolder(filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
}
