package badgerstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/toolguard"
)

// TestSheetsListWhatIsOpen opens, changes and closes operations in random order and reopens the ledger: what is open is
// what was open, and there is not much more on the sheets than that.
func TestSheetsListWhatIsOpen(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	ctx := context.Background()
	const all = 600
	ops := make([]*toolguard.Operation, all)
	write := func(open bool, of []int) {
		t.Helper()
		for i, n := range of {
			if ops[n] == nil {
				ops[n] = &toolguard.Operation{Key: fmt.Sprintf("key-%d", n), Intent: fmt.Sprintf("intent-%d", n), Occurrence: 1, Action: "a/b", Subject: "s"}
			}
			ops[n].Sent++
			w := &toolguard.Write{Token: fmt.Sprintf("%d/%d", n, ops[n].Sent), Operation: ops[n], Open: open, Holding: n%2 == 0, Lazy: true}
			if i == len(of)-1 {
				w.Lazy = false // and with it go the others
			}
			if err := s.Commit(ctx, w); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range of {
			page, err := s.Operations(ctx, toolguard.Query{Key: ops[n].Key})
			if err != nil || len(page.Operations) != 1 {
				t.Fatalf("%d: %v", n, err)
			}
			ops[n] = page.Operations[0]
		}
	}
	check := func(want []int) {
		t.Helper()
		page, err := s.Operations(ctx, toolguard.Query{Open: true})
		if err != nil {
			t.Fatal(err)
		}
		var keys, wanted []string
		for _, op := range page.Operations {
			keys = append(keys, op.Key)
		}
		for _, n := range want {
			wanted = append(wanted, ops[n].Key)
		}
		slices.Sort(keys)
		slices.Sort(wanted)
		if !slices.Equal(keys, wanted) {
			t.Fatalf("%d operations are open, want %d", len(keys), len(wanted))
		}
	}
	listed := func() (sheets, on int) {
		t.Helper()
		txn := s.db.NewTransactionAt(s.view.latest(), false)
		defer txn.Discard()
		r := &reading{s: s, ctx: ctx, txn: txn}
		err := r.scan([]byte{prefixSheet}, nil, false, func(item *badger.Item) (bool, error) {
			sheets++
			return true, item.Value(func(b []byte) error {
				return scanSheet(b, func(*listing) error { on++; return nil })
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return sheets, on
	}
	reopen := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	numbers := func(keep func(n int) bool) (some []int) {
		for n := range all {
			if keep(n) {
				some = append(some, n)
			}
		}
		return some
	}
	everyone := numbers(func(int) bool { return true })
	for from := 0; from < all; from += 50 {
		write(true, everyone[from:from+50])
	}
	check(everyone)
	if sheets, on := listed(); sheets > 30 || on != all {
		t.Errorf("%d sheets list %d operations", sheets, on)
	}
	reopen()
	check(everyone)

	write(true, everyone[:100]) // no change of what is listed
	tenth := numbers(func(n int) bool { return n%10 == 0 })
	write(false, numbers(func(n int) bool { return n%10 != 0 && n < all/2 }))
	reopen()
	write(false, numbers(func(n int) bool { return n%10 != 0 && n >= all/2 }))
	check(tenth)
	if sheets, on := listed(); sheets > 12 || on > sheetSparse*len(tenth) {
		t.Errorf("%d sheets list %d operations, and %d are open", sheets, on, len(tenth))
	}
	reopen()
	check(tenth)

	write(true, numbers(func(n int) bool { return n%10 == 1 })) // opened again
	check(numbers(func(n int) bool { return n%10 < 2 }))
	reopen()
	check(numbers(func(n int) bool { return n%10 < 2 }))
	write(false, numbers(func(n int) bool { return n%10 < 2 }))
	check(nil)
	reopen()
	check(nil)
	if sheets, on := listed(); sheets != 0 {
		t.Errorf("nothing is open, and %d sheets list %d operations", sheets, on)
	}
}

// TestBundledBodies writes bodies that expire at different times in one group.
func TestBundledBodies(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	ctx, now := context.Background(), time.Now()
	var ops []*toolguard.Operation
	for n := range 40 {
		op := &toolguard.Operation{Key: fmt.Sprintf("key-%d", n), Intent: fmt.Sprintf("intent-%d", n), Occurrence: 1}
		ops = append(ops, op)
		w := &toolguard.Write{
			Token: op.Key, Operation: op, Lazy: n < 39,
			Body: &toolguard.Body{Arguments: fmt.Append(nil, n)}, BodyUntil: now.Add(time.Hour + time.Duration(n/20)*time.Hour),
		}
		if n == 7 {
			w.BodyUntil = now.Add(-time.Second)
		}
		if err := s.Commit(ctx, w); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for n, op := range ops {
			body, err := s.Body(ctx, op.Key)
			if n == 7 {
				if err == nil {
					t.Error("an expired body was read")
				}
				continue
			}
			if err != nil || string(body.Arguments) != fmt.Sprint(n) {
				t.Errorf("body %d: %q, %v", n, body.Arguments, err)
			}
		}
		if err := s.Close(); err != nil { // and once more without what is kept in memory
			t.Fatal(err)
		}
		if s, err = Open(dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	txn := s.db.NewTransactionAt(s.view.latest(), false)
	defer txn.Discard()
	bundles := 0
	err = (&reading{s: s, ctx: ctx, txn: txn}).scan([]byte{prefixBundle}, nil, false, func(*badger.Item) (bool, error) {
		bundles++
		return true, nil
	})
	if err != nil || bundles > 4 {
		t.Errorf("%d bundles hold them, %v", bundles, err)
	}
}
