package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func (d *desk) absent(name string) {
	d.Helper()
	if _, err := os.Lstat(filepath.Join(d.dir, name)); err == nil {
		d.Errorf("there is a %s now", name)
	}
}

// What only reads or decides makes no ledger, wherever it is pointed.
func TestNoLedgerIsMade(t *testing.T) {
	d := newDesk(t)
	d.good("serve", "--sample", "--data", "all/one")
	d.good("serve", "--sample", "--data", "all/two of them")
	d.write("papers/letter.txt", "x")
	d.write("a-file", "x")
	if err := os.Mkdir(filepath.Join(d.dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"verify", "report", "export", "ops list", "ops show 12345678", "ops resolve 12345678 --verdict abandoned", "ops repeat 12345678"} {
		for folder, more := range map[string]string{"nowhere": "", "empty": "", "papers": "", "all": "; below it there are --data "} {
			out, errs, code := d.run(append(strings.Fields(command), "--data", folder)...)
			if want := "mcp-server: there is no ledger in @DIR@/" + folder + more; code != 1 || out != "" || !strings.HasPrefix(d.plain(errs), want) || len(lines(errs)) != 1 || more == "" && d.plain(errs) != want+"\n" {
				t.Errorf("%s in %s: exit %d, %s%s", command, folder, code, out, errs)
			}
			if folder == "all" && (!strings.Contains(d.plain(errs), "--data @DIR@/all/one") || !strings.Contains(d.plain(errs), "--data '@DIR@/all/two of them'")) {
				t.Errorf("%s does not name the ledgers below: %s", command, errs)
			}
			if entries, _ := os.ReadDir(filepath.Join(d.dir, folder)); len(entries) != map[string]int{"papers": 1, "all": 2}[folder] {
				t.Errorf("%s has left something in %s: %v", command, folder, entries)
			}
		}
		if _, errs, code := d.run(append(strings.Fields(command), "--data", "a-file")...); code != 1 || !strings.Contains(errs, "a-file") {
			t.Errorf("%s in a file: exit %d, %s", command, code, errs)
		}
	}
	d.absent("nowhere")
}

// No ledger is put among other things.
func TestServeInForeignFolder(t *testing.T) {
	d := newDesk(t)
	d.good("serve", "--sample", "--data", "all/one")
	d.write("papers/letter.txt", "x")
	d.write("toolguard.yaml", plainOffice+"store: badger:papers\n")
	for args, folder := range map[string]string{"serve": "papers", "serve --data all": "all", "serve --sample --data papers": "papers", "wrap --data papers -- " + binary + " sample-office": "papers"} {
		_, errs, code := d.run(strings.Fields(args)...)
		want := "@DIR@/" + folder + " is no ledger, and not empty: name another folder with --data"
		if folder == "all" {
			want += "; below it there are --data @DIR@/all/one"
		}
		if got := strings.Replace(d.plain(errs), "mcp-server: papers", "mcp-server: @DIR@/papers", 1); code != 2 || got != "mcp-server: "+want+"\n" {
			t.Errorf("%s: exit %d, %s", args, code, errs)
		}
	}
	// What a first start may have left behind when it was killed is no obstacle.
	d.write("begun/LOCK.toolguard", "")
	d.write("begun/lost+found/x", "")
	d.good("serve", "--sample", "--data", "begun")
}

// A server that was started without a configuration has its ledger in the state folder: it is named.
func TestLedgersAreNamed(t *testing.T) {
	d := newDesk(t)
	d.good("wrap", "--name", "books", "--", binary, "sample-office", "--file", "b.json")
	_, errs, code := d.run("ops", "list")
	const start = "and no @HOME@/.config/toolguard/toolguard.yaml; name one of these ledgers: --data "
	_, named, ok := strings.Cut(d.plain(errs), start)
	if code != 2 || !ok || !strings.HasPrefix(named, "@HOME@/.local/state/toolguard/books-") || len(lines(errs)) != 1 {
		t.Fatalf("exit %d, %s", code, errs)
	}
	folder := strings.Replace(strings.TrimSpace(named), "@HOME@", filepath.Join(filepath.Dir(d.dir), "home"), 1)
	if out := d.good("ops", "list", "--data", folder); out != "no operations\n" {
		t.Error(out)
	}
}

// The ledgers of wrapped servers can be told apart, and their names give no argument away.
func TestWrappedName(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-memory": "@modelcontextprotocol-server-memory",
		"/usr/bin/node /srv/memory/dist/index.js":    "memory-dist-index.js",
		"python3 -m books.server --token s3cret":     "books.server",
		"node":                                       "node",
		"/opt/books --token s3cret":                  "books",
	} {
		if got := wrappedName(strings.Fields(command)); got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}
}

// A command that cannot be started leaves no ledger behind, and has a name in what is said.
func TestWrapOfNothing(t *testing.T) {
	d := newDesk(t)
	if err := os.Mkdir(filepath.Join(d.dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"", "new", "empty"} {
		args := []string{"wrap", "--", filepath.Join(d.dir, "gone")}
		if data != "" {
			args = []string{"wrap", "--data", data, "--", filepath.Join(d.dir, "gone")}
		}
		_, errs, code := d.run(args...)
		got := lines(errs)
		if code != 1 || !strings.HasPrefix(got[len(got)-1], "mcp-server: the server gone cannot be started: ") || strings.Contains(errs, `server=""`) || strings.Contains(errs, "new ledger") {
			t.Errorf("exit %d\n%s", code, errs)
		}
		d.absent("new")
		if entries, err := os.ReadDir(filepath.Join(d.dir, "empty")); err != nil || len(entries) > 0 {
			t.Errorf("the empty folder: %v %v", entries, err)
		}
		if found, _ := filepath.Glob(filepath.Join(filepath.Dir(d.dir), "home/.local/state/toolguard/*")); len(found) > 0 {
			t.Errorf("a ledger was left behind: %v", found)
		}
	}
	// One that is there already stays.
	d.good("serve", "--sample", "--data", "ledger")
	if _, _, code := d.run("wrap", "--data", "ledger", "--", filepath.Join(d.dir, "gone")); code != 1 {
		t.Errorf("exit %d", code)
	}
	d.good("verify", "--data", "ledger")
}

// A ledger of a newer program is refused by this one, in one line, whatever is asked of it, and left as it is.
func TestNewerLedgerIsRefused(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", plainOffice)
	d.good("serve", "--data", "ledger")
	d.write("ledger/FORMAT", "toolguard ledger 99\n")
	for _, args := range [][]string{{"serve"}, {"ops", "list"}, {"verify"}, {"export"}} {
		_, errs, code := d.run(append(args, "--data", "ledger")...)
		if code != 1 || !strings.Contains(errs, "written in format 99 by a newer toolguard") {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	if text, err := os.ReadFile(filepath.Join(d.dir, "ledger", "FORMAT")); err != nil || string(text) != "toolguard ledger 99\n" {
		t.Errorf("now it is %q, %v", text, err)
	}
}
