package toolguard_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

const card = "4111222233334444"

func sealOf(t testing.TB, key string) *toolguard.Seal {
	t.Helper()
	s, err := toolguard.NewSeal(bytes.Repeat([]byte(key), toolguard.SealKeySize)[:toolguard.SealKeySize])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sealed is a world with a tool that pays with a card.
func sealed(t *testing.T, policy registry.Policy, test func(w *world)) {
	t.Helper()
	in(t, func(w *world) {
		w.seal = sealOf(t, "k")
		w.crash()
		policy.Secret = []string{"/card"}
		w.tool(registry.Tool{Name: "pay", Policy: policy})
		test(w)
	})
}

func payment(amount int) string {
	return fmt.Sprintf(`{ "invoice":"INV-1", "amount":%d, "card":"%s", "memo":"card %s" }`, amount, card, card)
}

// echo does it and repeats the card in every way; lose says so in an error of which nobody knows what it means.
func echo(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
	effect()
	return text("paid with "+card+" ("+base64.StdEncoding.EncodeToString([]byte(card))+")", false), nil
}

func lose(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
	effect()
	return registry.Answer{}, fmt.Errorf("connection reset after %s", d.Arguments)
}

// kept is everything that the ledger and the log hold.
func (w *world) kept() string {
	w.t.Helper()
	var b strings.Builder
	ctx := context.Background()
	page, err := w.store.Operations(ctx, toolguard.Query{All: true, Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, op := range page.Operations {
		line, _ := json.Marshal(op)
		b.Write(append(line, '\n'))
		if body, err := w.store.Body(ctx, op.Key); err == nil {
			fmt.Fprintf(&b, "%s\n%s\n%s\n", body.Arguments, body.Result, body.Sealed)
		}
	}
	events, err := w.store.Events(ctx, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events {
		line, _ := json.Marshal(e)
		b.Write(append(line, '\n'))
	}
	return b.String() + w.log.String()
}

// tells checks that a text has the card in no spelling.
func tells(t testing.TB, where, text string) {
	t.Helper()
	for _, s := range []string{card, "4111 2222", "4111-2222", hex.EncodeToString([]byte(card)), base64.RawStdEncoding.EncodeToString([]byte(card))[:20], `\u0034\u0031`} {
		if i := strings.Index(text, s); i >= 0 {
			t.Errorf("%s has the card: …%s…", where, text[max(0, i-60):min(len(text), i+60)])
		}
	}
}

// Whatever becomes of a call, its secret is nowhere but sealed: not in the ledger, not in the audit, not in what a model is told.
func TestSecretsStaySealed(t *testing.T) {
	find := func(answers ...registry.Answer) []registry.Lookup {
		n := 0
		x, _ := registry.CompileExpression(`result.text.startsWith("found")`, registry.KindAnswer)
		y, _ := registry.CompileExpression(`result.text.startsWith("none")`, registry.KindAnswer)
		args, _ := registry.ParseTemplate(json.RawMessage(`{"key":"{{key}}","card":"{{args.card}}"}`))
		return []registry.Lookup{{Tool: "find", Arguments: args, Applied: x, Absent: y, Settle: time.Second, Handler: func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
			if !strings.Contains(string(d.Arguments), card) {
				return registry.Answer{}, errors.New("asked without the card")
			}
			n++
			return answers[min(n, len(answers))-1], nil
		}}}
	}
	for _, c := range []struct {
		name   string
		policy registry.Policy
		play   func(w *world) []*toolguard.Result
	}{
		{"done and replayed", registry.Policy{}, func(w *world) []*toolguard.Result {
			w.next(echo)
			first := w.send("pay", payment(1), event("e"))
			again := w.call("pay", payment(1), event("e"))
			w.want(first, "fresh")
			w.want(again, "replayed/done")
			if string(again.Answer.Result) != string(first.Answer.Result) {
				t.Errorf("the replay is %s", again.Answer.Result)
			}
			return []*toolguard.Result{first, again}
		}},
		{"refused", registry.Policy{}, func(w *world) []*toolguard.Result {
			w.next(refused("invalid card " + card))
			r := w.send("pay", payment(1))
			w.want(r, "fresh//failed")
			return []*toolguard.Result{r}
		}},
		{"unknown, and a person says that it was done", registry.Policy{}, func(w *world) []*toolguard.Result {
			w.next(lose)
			r := w.send("pay", payment(1))
			w.want(r, "escalated")
			w.wait(time.Hour)
			if err := w.resolve(r.Verdict.Key, toolguard.VerdictApplied, false); err != nil {
				t.Error(err)
			}
			again := w.call("pay", payment(1))
			w.want(again, "replayed/done")
			return []*toolguard.Result{r, again}
		}},
		{"unknown, and sent again by a person's order", registry.Policy{}, func(w *world) []*toolguard.Result {
			w.next(lose, echo)
			r := w.send("pay", payment(1))
			w.wait(time.Hour)
			if err := w.repeat(r.Verdict.Key, false); err != nil {
				t.Error(err)
			}
			w.wait(time.Minute)
			w.had(2)
			if w.effects[0] != w.effects[1] || w.effects[0] != "pay "+payment(1) {
				t.Errorf("sent %q", w.effects)
			}
			return []*toolguard.Result{r, w.call("pay", payment(1))}
		}},
		{"found by a lookup", registry.Policy{Lookups: find(text("found "+card, false)), AnswerWithin: time.Minute}, func(w *world) []*toolguard.Result {
			w.next(lose)
			r := w.send("pay", payment(1))
			w.want(r, "replayed/done")
			return []*toolguard.Result{r}
		}},
		{"a lookup that cannot tell", registry.Policy{Lookups: find(text("hm, "+card, false))}, func(w *world) []*toolguard.Result {
			w.next(lose)
			r := w.send("pay", payment(1))
			w.wait(24 * time.Hour)
			return []*toolguard.Result{r}
		}},
		{"absent, and sent again", registry.Policy{Timeout: time.Second, Lookups: find(text("none "+card, false))}, func(w *world) []*toolguard.Result {
			w.next(dropped, echo)
			r := w.send("pay", payment(1))
			w.wait(time.Hour)
			w.had(1)
			return []*toolguard.Result{r, w.call("pay", payment(1))}
		}},
		{"approved", registry.Policy{Approval: &registry.Approval{}}, func(w *world) []*toolguard.Result {
			w.next(echo)
			r := w.send("pay", payment(1))
			w.want(r, "pending/approval_required")
			if _, err := toolguard.DecideApproval(context.Background(), w.store, toolguard.ApprovalVerdict{ID: r.Verdict.Approval, Approve: true, By: toolguard.Person{Name: "dana"}}); err != nil {
				t.Error(err)
			}
			w.wait(time.Minute)
			w.had(1)
			if w.effects[0] != "pay "+payment(1) {
				t.Errorf("sent %q", w.effects)
			}
			return []*toolguard.Result{r, w.call("pay", payment(1))}
		}},
		{"rejected", registry.Policy{Approval: &registry.Approval{}}, func(w *world) []*toolguard.Result {
			r := w.send("pay", payment(1))
			if _, err := toolguard.DecideApproval(context.Background(), w.store, toolguard.ApprovalVerdict{ID: r.Verdict.Approval, By: toolguard.Person{Name: "dana"}}); err != nil {
				t.Error(err)
			}
			return []*toolguard.Result{r, w.call("pay", payment(1))}
		}},
		{"a late answer", registry.Policy{Timeout: time.Second}, func(w *world) []*toolguard.Result {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				time.Sleep(time.Minute)
				return echo(w, ctx, d, effect)
			})
			r := w.send("pay", payment(1))
			w.wait(time.Hour)
			again := w.call("pay", payment(1))
			w.want(again, "replayed/done")
			return []*toolguard.Result{r, again}
		}},
		{"crash", registry.Policy{DownstreamKey: registry.DownstreamKey{Meta: "key", Window: 24 * time.Hour}, Timeout: time.Second}, func(w *world) []*toolguard.Result {
			w.next(slow(30*time.Second), echo)
			r := w.giveUp(time.Millisecond, "pay", payment(1))
			w.crash()
			w.wait(time.Minute)
			again := w.call("pay", payment(1))
			w.want(again, "replayed/done")
			return []*toolguard.Result{r, again}
		}},
		{"held, and changed", registry.Policy{}, func(w *world) []*toolguard.Result {
			w.next(echo)
			first := w.send("pay", payment(1), event("e"))
			held := w.send("pay", payment(2), event("e"))
			w.want(held, "blocked/earlier_unknown")
			return []*toolguard.Result{first, held}
		}},
		{"not valid", registry.Policy{}, func(w *world) []*toolguard.Result {
			w.change("pay", func(s *registry.Tool) {
				s.InputSchema = json.RawMessage(`{"type":"object","properties":{"card":{"maxLength":4,"not":{"const":"x"}}}}`)
			})
			r := w.send("pay", payment(1))
			w.want(r, "blocked/invalid_arguments")
			return []*toolguard.Result{r}
		}},
		{"a read that fails", registry.Policy{}, func(w *world) []*toolguard.Result {
			w.tool(registry.Tool{Name: "balance", Effect: registry.Read, Policy: registry.Policy{Secret: []string{"/card"}}})
			w.next(lose)
			r := w.send("balance", payment(1))
			w.want(r, "blocked/tool_unavailable")
			return []*toolguard.Result{r}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sealed(t, c.policy, func(w *world) {
				for i, r := range c.play(w) {
					verdict, _ := json.Marshal(r.Verdict)
					tells(t, fmt.Sprintf("what call %d is told", i+1), r.Text+string(verdict))
				}
				w.wait(time.Minute)
				page, _ := w.store.Operations(context.Background(), toolguard.Query{All: true})
				for _, op := range page.Operations {
					if !strings.HasPrefix(op.Frozen, "hmac-sha256:") {
						t.Errorf("a hash that lets the card be guessed: %s", op.Frozen)
					}
				}
				kept := w.kept()
				tells(t, "what is kept", kept)
				if !strings.Contains(kept, `"(secret)"`) && c.name != "not valid" && c.name != "a read that fails" {
					t.Errorf("where is it hidden?\n%s", kept)
				}
			})
		})
	}
}

// A secret counts: another card is another call, and under one key it is blocked with the field's name only.
func TestSecretsCount(t *testing.T) {
	sealed(t, registry.Policy{OncePer: []string{"source_event", "/invoice"}}, func(w *world) {
		w.want(w.call("pay", payment(1), event("e")), "fresh")
		other := w.call("pay", strings.ReplaceAll(payment(1), card, "5555222233334444"), event("e"))
		w.want(other, "blocked/arguments_changed")
		if got := fmt.Sprint(other.Verdict.Differs); got != "[/card /memo]" {
			t.Errorf("differs in %s", got)
		}
		tells(t, "the text", other.Text)
		w.had(1)
	})
	sealed(t, registry.Policy{}, func(w *world) {
		w.next(lose)
		w.want(w.call("pay", `{"card":"`+card+`","amount":1}`), "escalated")
		held := w.call("pay", `{"card":"`+card+`","amount":2}`)
		w.want(held, "blocked/earlier_unknown")
		if !strings.Contains(held.Text, "same value in card") {
			t.Error(held.Text)
		}
		w.want(w.call("pay", `{"card":"5555222233334444","amount":2}`), "fresh")
	})
}

// A result goes whole only to a call that carries the same secret.
func TestReplayShowsSecretsToWhoSentThem(t *testing.T) {
	sealed(t, registry.Policy{OncePer: []string{"source_event"}, MayDiffer: []string{"/card", "/memo"}}, func(w *world) {
		w.next(echo)
		w.want(w.send("pay", payment(1), event("e")), "fresh")
		other := w.call("pay", `{"invoice":"INV-1","amount":1,"card":"5555222233334444"}`, event("e"))
		w.want(other, "replayed/done")
		tells(t, "the replay", string(other.Answer.Result)+other.Text)
		if !strings.Contains(string(other.Answer.Result), "paid with (secret)") {
			t.Errorf("%s", other.Answer.Result)
		}
		w.want(w.call("pay", payment(1), event("e")), "replayed/done")
	})
	sealed(t, registry.Policy{OncePer: []string{"source_event"}, MayDiffer: []string{"/card", "/memo"}}, func(w *world) {
		w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
			time.Sleep(time.Second)
			return echo(w, ctx, d, effect)
		})
		owner := make(chan *toolguard.Result)
		go func() { owner <- w.send("pay", payment(1), event("e")) }()
		w.wait(time.Millisecond)
		waits := w.send("pay", `{"invoice":"INV-1","amount":1,"card":"5555222233334444"}`, event("e"))
		w.want(waits, "replayed/done")
		tells(t, "what the one that waited gets", string(waits.Answer.Result))
		if r := <-owner; !strings.Contains(string(r.Answer.Result), card) {
			t.Errorf("the tool's own answer: %s", r.Answer.Result)
		}
	})
}

// A secret that also stands where it would be recorded as it is keeps the call from being sent.
func TestSecretsInTheOpenAreRefused(t *testing.T) {
	sealed(t, registry.Policy{OncePer: []string{"/invoice"}}, func(w *world) {
		r := w.call("pay", `{"invoice":"INV-`+card+`","card":"`+card+`"}`)
		w.want(r, "blocked/invalid_arguments")
		w.want(w.call("pay", `{"invoice":"INV-2","card":"`+card+`"}`, event("evt-4111-2222-3333-4444")), "blocked/invalid_arguments")
		w.want(w.call("pay", `{"invoice":"INV-2","card":"`+card+`"}`, callID("s", "call "+card)), "blocked/invalid_arguments")
		w.want(w.call("pay", `{"invoice":"INV-1234","card":"1234"}`), "fresh") // too short to be more than chance
		tells(t, "what is kept", w.kept()+r.Text)
		w.had(1)
	})
}

// Without the key, or with another one, tools with secrets are not called and say so; what was done is still known, and other
// tools are as they were. The right key makes all well again.
func TestLostSeal(t *testing.T) {
	for name, lose := range map[string]func() *toolguard.Seal{
		"lost":    func() *toolguard.Seal { return toolguard.LostSeal(errors.New("secret.key is not there")) },
		"another": func() *toolguard.Seal { return sealOf(t, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			sealed(t, registry.Policy{OncePer: []string{"/invoice"}}, func(w *world) {
				w.tool(registry.Tool{Name: "note"})
				w.tool(registry.Tool{Name: "turn", Policy: registry.Policy{Secret: []string{"/card"}}})
				w.want(w.call("pay", payment(1)), "fresh")
				w.next(lost)
				w.want(w.send("turn", payment(1)), "escalated")
				key := w.seal
				w.seal = lose()
				w.crash()
				if notes := strings.Join(w.tools["pay"].Notes, " "); !strings.Contains(notes, "cannot be kept") {
					t.Errorf("the operator is told %q", notes)
				}
				again := w.call("pay", payment(1))
				w.want(again, "replayed/body_not_stored")
				w.want(w.call("pay", payment(2)), "blocked/arguments_changed")
				w.want(w.call("turn", payment(1)), "blocked/store_unavailable")
				fresh := w.call("pay", `{"invoice":"INV-2","card":"`+card+`"}`)
				w.want(fresh, "blocked/store_unavailable")
				if !strings.Contains(fresh.Text, "put the key back") {
					t.Error(fresh.Text)
				}
				w.want(w.call("note", `{"a":1}`), "fresh")
				w.had(3)
				tells(t, "what is kept", w.kept())

				w.seal = key
				w.crash()
				w.want(w.call("pay", payment(1)), "replayed/done")
				w.want(w.call("turn", payment(1)), "escalated")
				w.want(w.call("pay", `{"invoice":"INV-2","card":"`+card+`"}`), "fresh")
			})
		})
	}
}

// A guard without a seal takes no tool with secrets.
func TestSecretsNeedASeal(t *testing.T) {
	in(t, func(w *world) {
		e, err := registry.Compile(registry.Tool{Server: "srv", Name: "pay", Policy: registry.Policy{Secret: []string{"/card"}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.g.Register(context.Background(), e); !errors.Is(err, toolguard.ErrSealed) {
			t.Errorf("%v", err)
		}
		if _, err := toolguard.NewSeal([]byte("short")); err == nil {
			t.Error("a short key was taken")
		}
	})
}

// To declare a secret, or not to any more, makes no retry into something new.
func TestSecretDeclaredLater(t *testing.T) {
	sealed(t, registry.Policy{}, func(w *world) {
		w.change("pay", func(s *registry.Tool) { s.Policy.Secret = nil })
		w.want(w.send("pay", payment(1), event("e")), "fresh")
		w.next(lost)
		w.want(w.send("pay", `{"amount":7}`, event("f")), "escalated")
		w.change("pay", func(s *registry.Tool) { s.Policy.Secret = []string{"/card"} })
		w.want(w.call("pay", payment(1), event("e")), "replayed/done")
		w.want(w.call("pay", `{"amount":7}`, event("f")), "escalated")
		w.next(lost)
		unknown := w.send("pay", `{"card":"5555222233334444"}`, event("g"))
		w.want(unknown, "escalated")
		w.change("pay", func(s *registry.Tool) { s.Policy.Secret = nil })
		w.want(w.call("pay", `{"card":"5555222233334444"}`, event("g")), "escalated")
		w.wait(time.Hour)
		if err := w.repeat(unknown.Verdict.Key, false); err != nil {
			t.Error(err)
		}
		w.wait(time.Minute)
		if got := w.effects[len(w.effects)-1]; got != `pay {"card":"5555222233334444"}` {
			t.Errorf("sent again: %s", got)
		}
	})
}

// What was sealed opens only as it was, and only for its own operation.
func TestSealedBodyIsBound(t *testing.T) {
	for name, spoil := range map[string]func(mine, other []byte) []byte{
		"changed":        func(mine, _ []byte) []byte { mine[len(mine)-20] ^= 1; return mine },
		"another's":      func(_, other []byte) []byte { return other },
		"cut":            func(mine, _ []byte) []byte { return mine[:3] },
		"another format": func(mine, _ []byte) []byte { mine[0] = 9; return mine },
	} {
		t.Run(name, func(t *testing.T) {
			sealed(t, registry.Policy{}, func(w *world) {
				w.next(lost, lost)
				mine, other := w.send("pay", payment(1), event("e")), w.send("pay", `{"card":"5555222233334444","x":1}`, event("f"))
				ctx := context.Background()
				body, _ := w.store.Body(ctx, mine.Verdict.Key)
				foreign, _ := w.store.Body(ctx, other.Verdict.Key)
				body.Sealed = spoil(bytes.Clone(body.Sealed), foreign.Sealed)
				op := w.op(mine.Verdict.Key)
				if err := w.store.Commit(ctx, &toolguard.Write{Token: "spoil", Operation: op, Open: true, Holding: true, Queue: toolguard.QueueOutcome, Body: &body}); err != nil {
					t.Fatal(err)
				}
				w.wait(time.Hour)
				if err := w.repeat(op.Key, false); err != nil {
					t.Fatal(err)
				}
				w.wait(time.Minute)
				w.sent(2)
				if !strings.Contains(w.log.String(), "sealed") {
					t.Errorf("nobody is told: %s", w.log.String())
				}
			})
		})
	}
}

// Of many secrets, those of the latest calls are hidden, whoever logs meanwhile.
func TestSealRemembersTheLatest(t *testing.T) {
	sealed(t, registry.Policy{}, func(w *world) {
		const calls = 300
		number := func(i int) string { return fmt.Sprintf("49297315%08d", i) }
		logged := make(chan struct{})
		go func() {
			defer close(logged)
			for i := range calls {
				w.seal.Redact(number(i))
			}
		}()
		for i := range calls {
			w.call("pay", `{"card":"`+number(i)+`"}`)
		}
		<-logged
		if first, last := w.seal.Redact(number(0)), w.seal.Redact(number(calls-1)+" "+number(calls-256)); first != number(0) || last != "(secret) (secret)" {
			t.Errorf("%q, %q", first, last)
		}
	})
}

// What a server writes to its stderr while it is called goes to the log without the secret.
func TestSealHidesInLogs(t *testing.T) {
	sealed(t, registry.Policy{}, func(w *world) {
		var b strings.Builder
		log := slog.New(w.seal.Handler(slog.NewTextHandler(&b, nil))).With("with", "card "+card)
		log.Info("before " + card)
		if !strings.Contains(b.String(), "before "+card) {
			t.Error("hidden before it was known")
		}
		b.Reset()
		w.call("pay", payment(1))
		slog.New(w.seal.Handler(slog.NewTextHandler(&b, nil))).With("with", "card "+card).WithGroup("g").
			Info("paid with "+card, "err", fmt.Errorf("no %s", card), slog.Group("in", "n", card), "n", 7)
		tells(t, "the log", b.String())
		if !strings.Contains(b.String(), `"paid with (secret)"`) || !strings.Contains(b.String(), "g.n=7") {
			t.Error(b.String())
		}
	})
}
