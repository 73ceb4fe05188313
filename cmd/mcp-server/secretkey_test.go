package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const secretOffice = `version: 1
store: badger:@DIR@/ledger
mcpServers:
  office: {command: "@BINARY@", args: [sample-office, --file, "@DIR@/office.json"]}
tools:
  office/pay_invoice: {once_per: [/invoice_id], secret: [/memo]}
`

// The key for secrets is made once, for this user only, and only where the configuration has secrets; without it, or with one
// that others may read, tools with secrets are not called, and others are.
func TestSecretKey(t *testing.T) {
	d := newDesk(t)
	file := filepath.Join(d.dir, "ledger", keyFile)
	d.write("toolguard.yaml", secretOffice)
	pay := func(invoice, memo string) answered {
		c := d.serve("serve")
		defer c.kill()
		return d.call(c, "pay_invoice", map[string]any{"invoice_id": invoice, "amount": 1, "memo": memo})
	}
	wants := func(a answered, outcome, reason string) {
		t.Helper()
		if v := a.Meta.Verdict; string(v.Outcome) != outcome || string(v.Reason) != reason {
			t.Errorf("got %s/%s, want %s/%s\n%s", v.Outcome, v.Reason, outcome, reason, a.text())
		}
	}
	d.write("toolguard.yaml", strings.Replace(secretOffice, ", secret: [/memo]", "", 1))
	wants(pay("INV-1003", "open"), "fresh", "")
	d.absent("ledger/" + keyFile)
	d.write("toolguard.yaml", secretOffice)
	d.good("check")
	if out, _, _ := d.run("check", "--drill"); !strings.Contains(out, "office/pay_invoice") {
		t.Error(out)
	}
	d.good("ops", "list")
	d.good("verify")
	d.absent("ledger/" + keyFile)

	wants(pay("INV-1001", "the password"), "fresh", "")
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	key, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wants(pay("INV-1001", "the password"), "replayed", "done")
	if out := d.good("ops", "list", "--json") + d.good("export"); strings.Contains(out, "the password") {
		t.Errorf("shown: %s", out)
	}

	for name, spoil := range map[string]func() error{
		"open to others": func() error { return os.Chmod(file, 0o640) },
		"no key":         func() error { return os.WriteFile(file, []byte("x\n"), 0o600) },
		"another key":    func() error { return os.WriteFile(file, []byte(strings.Repeat("ab", 32)+"\n"), 0o600) },
		"a folder":       func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
		"lost":           func() error { return os.RemoveAll(file) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			wants(pay("INV-1001", "the password"), "replayed", "body_not_stored")
			refused := pay("INV-1002", "the password")
			wants(refused, "blocked", "store_unavailable")
			if !strings.Contains(refused.text(), "put the key back") {
				t.Error(refused.text())
			}
			c := d.serve("serve")
			defer c.kill()
			wants(d.call(c, "create_ticket", map[string]any{"title": name}), "fresh", "")
		})
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wants(pay("INV-1001", "the password"), "replayed", "done")
}

// Of many that make the key at once, one does, and all have the same.
func TestSecretKeyMadeAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	makers, keys := 0, map[string]bool{}
	for range 16 {
		wg.Go(func() {
			made, err := makeKey(dir)
			key, failed := readKey(filepath.Join(dir, keyFile))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || failed != nil {
				t.Error(err, failed)
			}
			if made {
				makers++
			}
			keys[string(key)] = true
		})
	}
	wg.Wait()
	if makers != 1 || len(keys) != 1 {
		t.Errorf("%d made it, and there are %d keys", makers, len(keys))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// A server that does not begin takes the key back with the new ledger.
func TestSecretKeyIsTakenBack(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", strings.Replace(secretOffice, "/memo", "/no_such", 1))
	if out, errs, code := d.run("serve"); code != 2 || !strings.Contains(errs, "secret names /no_such, which the tool's input schema does not have") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	d.absent("ledger")
}

// check says what sealing does not protect against, where there are secrets.
func TestCheckSealing(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", secretOffice)
	out := d.good("check")
	for _, words := range []string{"\nSecrets\n", "secret: /memo", "does not protect against", "a backup that holds both", "this program's memory", "own transcript", "fewer than 4 characters"} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	var r checked
	if err := json.Unmarshal([]byte(d.good("check", "--json")), &r); err != nil || len(r.Sealing) != len(sealing) {
		t.Errorf("%v, %d lines", err, len(r.Sealing))
	}
	d.write("toolguard.yaml", plainOffice)
	if out := d.good("check"); strings.Contains(out, "Secrets") {
		t.Errorf("no secrets, and\n%s", out)
	}
}
