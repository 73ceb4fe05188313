//go:build unix

package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func init() { peers["postgres"] = insertRow }

// cluster is a PostgreSQL server of the tests' own, with a folder of its own, for the time of the test run.
type cluster struct {
	dir  string
	port int
	cmd  *exec.Cmd
	says lockedBuffer
}

var clusterOnce = sync.OnceValues(startCluster)

// program finds one of PostgreSQL's programs, also where Debian keeps those that are not on the PATH.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("PostgreSQL's %s is not installed", name)
	}
	return found[len(found)-1], nil
}

func startCluster() (_ *cluster, err error) {
	initdb, err := program("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := program("postgres")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "e2e-postgres")
	if err != nil {
		return nil, err
	}
	atEnd(func() { os.RemoveAll(dir) })
	c := &cluster{dir: dir}
	own := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // as whom it does not run
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
		own.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	make := exec.Command(initdb, "-D", filepath.Join(dir, "data"), "-U", "e2e", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	make.Dir, make.SysProcAttr = dir, own
	if text, err := make.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, text)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	c.cmd = exec.Command(postgres, "-D", filepath.Join(dir, "data"), "-p", fmt.Sprint(c.port), "-k", dir, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	c.cmd.Dir, c.cmd.SysProcAttr, c.cmd.Stderr, c.cmd.WaitDelay = dir, own, &c.says, time.Second
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	atEnd(func() {
		_ = c.cmd.Process.Signal(syscall.SIGQUIT)
		_ = c.cmd.Wait()
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if strings.Contains(c.says.String(), "ready to accept connections") {
			return c, nil
		}
	}
	return nil, fmt.Errorf("PostgreSQL did not start:\n%s", c.says.String())
}

// sql runs statements and returns what they print.
func (c *cluster) sql(t testing.TB, database, statements string) string {
	t.Helper()
	psql, err := program("psql")
	need(t, err)
	cmd := exec.Command(psql, "-h", "127.0.0.1", "-p", fmt.Sprint(c.port), "-U", "e2e", "-d", database, "-v", "ON_ERROR_STOP=1", "-Atqc", statements)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

var databases struct {
	sync.Mutex
	made int
}

// insertRow is insert into a table of payments: each execution adds a row.
func insertRow(t testing.TB) peer {
	node := needNode(t)
	c, err := clusterOnce()
	need(t, err)
	databases.Lock()
	databases.made++
	name := fmt.Sprint("e2e_", databases.made)
	c.sql(t, "postgres", "CREATE DATABASE "+name) // one at a time: they copy the same template
	databases.Unlock()
	c.sql(t, name, "CREATE TABLE payments (id serial PRIMARY KEY, invoice text NOT NULL, amount numeric NOT NULL)")
	s := &service{t: t}
	return peer{
		up: upstream{name: "postgres", argv: []string{node, nodePath(t, "node_modules/enhanced-postgres-mcp-server/dist/index.js"),
			fmt.Sprintf("postgres://e2e@127.0.0.1:%d/%s", proxied(t, s, c.port), name)}},
		tool:     "insert",
		args:     args{"table": "payments", "data": args{"invoice": "INV-7", "amount": 120}},
		reworded: args{"table": "payments", "data": args{"invoice": "INV-7", "amount": 120.5}},
		read:     "query", readArgs: args{"sql": "SELECT 1"},
		policy:  "postgres/query: {effect: read}",
		service: s, faults: []string{drop},
		effects: func() int {
			n, err := strconv.Atoi(c.sql(t, name, "SELECT count(*) FROM payments"))
			if err != nil {
				t.Error(err)
			}
			return n
		},
	}
}

// proxied stands between the server and its database. Where an answer is to be held, it is that to the next COMMIT.
func proxied(t testing.TB, s *service, port int) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	t.Cleanup(func() { l.Close(); close(gone) })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			database, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				client.Close()
				continue
			}
			go relay(s, client, database, gone)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func relay(s *service, client, database net.Conn, gone <-chan struct{}) {
	defer client.Close()
	defer database.Close()
	commits := make(chan *hold, 8)
	go func() { // to the database
		defer database.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if bytes.Contains(buffer[:n], []byte("COMMIT")) {
				s.update(func() {
					if len(s.holds) > 0 {
						commits <- s.holds[0]
						s.holds = s.holds[1:]
					}
				})
			}
			if _, e := database.Write(buffer[:n]); errors.Join(err, e) != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := database.Read(buffer)
		select {
		case h := <-commits:
			h.reached <- nil
			select {
			case word := <-h.word:
				if word == drop {
					return
				}
			case <-gone:
				return
			}
		default:
		}
		if _, e := client.Write(buffer[:n]); errors.Join(err, e) != nil {
			return
		}
	}
}
