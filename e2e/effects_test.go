package e2e_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// workpiece is one real tool that writes, its arguments, and a count of its effects in the real world.
type workpiece struct {
	tap     *tap
	tool    string
	args    args
	effects func() int
}

// appendLine is edit_file used to add a line: each execution adds it once more.
func appendLine(t testing.TB) workpiece {
	dir := t.TempDir()
	file := filepath.Join(dir, "list.txt")
	writeFile(t, file, "head\ntail\n")
	return workpiece{
		tap:  tapped(t, filesystem(t, dir)),
		tool: "edit_file",
		args: args{"path": file, "edits": []any{args{"oldText": "head\n", "newText": "head\nadded\n"}}},
		effects: func() int {
			return strings.Count(readFile(t, file), "added\n")
		},
	}
}

// emptyCommit is git_commit with allowEmpty: each execution makes one more commit.
func emptyCommit(t testing.TB) workpiece {
	base := t.TempDir()
	repo := newRepo(t, base)
	return workpiece{
		tap:     tapped(t, gitServer(t, base)),
		tool:    "git_commit",
		args:    args{"path": repo, "message": "one", "allowEmpty": true},
		effects: func() int { return commits(t, repo, "HEAD") - 1 },
	}
}

// newRepo makes a repository with one commit, and a bare one beside it as its origin.
func newRepo(t testing.TB, base string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		need(t, err)
	}
	repo := filepath.Join(base, "repo")
	git(t, base, "init", "--quiet", "--bare", "-b", "main", "origin.git")
	git(t, base, "init", "--quiet", "-b", "main", repo)
	git(t, repo, "config", "user.name", "E2E")
	git(t, repo, "config", "user.email", "e2e@example.com")
	git(t, repo, "remote", "add", "origin", filepath.Join(base, "origin.git"))
	git(t, repo, "commit", "--quiet", "--allow-empty", "-m", "root")
	return repo
}

func git(t testing.TB, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir}, argv...)...)
	cmd.Env = environ(gitEnv(map[string]string{}))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func commits(t testing.TB, repo, ref string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(git(t, repo, "rev-list", "--count", ref), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (w workpiece) happened(t testing.TB, n int) {
	t.Helper()
	if got := w.effects(); got != n {
		t.Errorf("%s had %d effects in the real world, want %d", w.tool, got, n)
	}
}

var workpieces = map[string]func(testing.TB) workpiece{"edit_file": appendLine, "git_commit": emptyCommit}

// TestWithoutTheGuardTheyRepeat is the premise of this file: sent twice, each of these tools acts twice.
func TestWithoutTheGuardTheyRepeat(t *testing.T) {
	t.Parallel()
	for name, build := range workpieces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t)
			c := direct(t, w.tap.up)
			c.call(w.tool, w.args)
			c.call(w.tool, w.args)
			c.end()
			w.tap.executed(w.tool, 2)
			w.happened(t, 2)
		})
	}
	t.Run("create_entities", func(t *testing.T) {
		t.Parallel()
		c := direct(t, memory(t, filepath.Join(t.TempDir(), "m.jsonl")))
		first, second := c.call("create_entities", ada), c.call("create_entities", ada)
		c.end()
		sameJSON(t, "the first answer", first.structured["entities"], ada["entities"])
		sameJSON(t, "the second answer", second.structured["entities"], []any{})
	})
}

var ada = args{"entities": []any{args{"name": "Ada", "entityType": "person", "observations": []any{"wrote notes"}}}}

func forEach(t *testing.T, test func(t *testing.T, w workpiece, era string)) {
	for name, build := range workpieces {
		for _, era := range eras {
			t.Run(name+"/"+era, func(t *testing.T) {
				t.Parallel()
				test(t, build(t), era)
			})
		}
	}
}

// TestResentAfterTheClientLostTheAnswer: the client dies while the tool runs; its successor sends the call again and
// gets the recorded answer.
func TestResentAfterTheClientLostTheAnswer(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w workpiece, era string) {
		g := wrap(t, w.tap.up)
		h := w.tap.holdCall(w.tool)
		c := g.start(t, era)
		c.sendCall(w.tool, w.args)
		h.at()
		c.leave()
		h.let(pass)
		c.ended()
		w.happened(t, 1)

		c = g.start(t, era)
		second := c.call(w.tool, w.args).is("replayed", "done")
		if own := w.tap.last(w.tool).response["result"].(map[string]any); len(second.content) > 0 {
			sameJSON(t, "the replayed content", second.content[1:], own["content"])
		}
		c.call(w.tool, w.args).is("replayed", "done")
		c.end()
		w.tap.executed(w.tool, 1)
		w.happened(t, 1)
		g.cli(t, "verify")
	})
}

// TestResentAfterCancel: the client gives the call up while the tool runs and sends it again on the same pipe, before
// and after the tool is done.
func TestResentAfterCancel(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w workpiece, era string) {
		g := wrap(t, w.tap.up)
		h := w.tap.holdCall(w.tool)
		c := g.start(t, era)
		first := c.sendCall(w.tool, w.args)
		h.at()
		c.cancel(first)
		second := c.sendCall(w.tool, w.args)
		c.list() // the cancel has been read
		h.let(pass)
		answer := c.result(second).is("replayed", "done")
		if c.answered(first) && !unguarded {
			t.Logf("the cancelled call was answered: allowed, but of no use")
		}
		sameJSON(t, "two replays", c.call(w.tool, w.args).own()["content"].([]any)[1:], answer.content[1:])
		c.end()
		w.tap.executed(w.tool, 1)
		w.happened(t, 1)
	})
}

// TestResentAfterTheServerDied: the server does it and dies before it can say so. What became of it is not known, the
// caller is told so, and so is everybody who asks again; other calls get a new server.
func TestResentAfterTheServerDied(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w workpiece, era string) {
		g := wrap(t, w.tap.up)
		w.tap.holdAnswer(w.tool).let(die)
		c := g.start(t, era)
		for range 3 {
			c.call(w.tool, w.args).is("escalated", "outcome_unknown")
		}
		c.end()
		w.tap.executed(w.tool, 1)
		w.happened(t, 1)

		c = g.start(t, era)
		c.call(w.tool, w.args).is("escalated", "outcome_unknown")
		read, arguments := "list_allowed_directories", args{}
		if w.tool == "git_commit" {
			read, arguments = "git_log", args{"path": w.args["path"]}
		}
		if r := c.call(read, arguments); r.isError {
			t.Errorf("%s after the server died: %s", read, r)
		}
		c.end()
		w.tap.executed(w.tool, 1)
		w.happened(t, 1)
	})
}

// TestTheServerComesBack: in the same session in which the server died.
func TestTheServerComesBack(t *testing.T) {
	t.Parallel()
	w := appendLine(t)
	c := wrap(t, w.tap.up).start(t, legacy)
	w.tap.holdAnswer(w.tool).let(die)
	c.call(w.tool, w.args).is("escalated", "outcome_unknown")
	poll(t, "a read goes through again", func() bool { return !c.call("list_allowed_directories", args{}).isError })
	c.call(w.tool, w.args).is("escalated", "outcome_unknown")
	c.end()
	w.tap.executed(w.tool, 1)
}

// TestLateAnswerSettles: the answer comes after the deadline. Until then the caller is told that the tool runs, then
// that the outcome is not known, and from the answer on that it is done.
func TestLateAnswerSettles(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w workpiece, era string) {
		g := serve(t, w.tap.up, "defaults: {answer_within: 1s, timeout: 3s}")
		c := g.start(t, era)
		c.list()
		h := w.tap.holdAnswer(w.tool)
		c.call(w.tool, w.args).is("pending", "in_progress")
		h.at()
		w.happened(t, 1)
		c.callUntilSettled(w.tool, w.args).is("escalated", "outcome_unknown")
		h.let(pass)
		var r *result
		poll(t, "the late answer is in", func() bool {
			r = c.call(w.tool, w.args)
			return r.says("outcome") != "escalated"
		})
		r.is("replayed", "done")
		sameJSON(t, "the late answer", r.content[1:], w.tap.last(w.tool).response["result"].(map[string]any)["content"])
		c.end()
		w.tap.executed(w.tool, 1)
		w.happened(t, 1)
	})
}

// TestAnswerThatNeverComes: as above, but the answer is lost for good.
func TestAnswerThatNeverComes(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w workpiece, era string) {
		g := serve(t, w.tap.up, "shutdown: 1s\ndefaults: {answer_within: 1s, timeout: 2s}")
		c := g.start(t, era)
		w.tap.holdAnswer(w.tool).let(drop)
		c.call(w.tool, w.args).is("pending", "in_progress")
		c.callUntilSettled(w.tool, w.args).is("escalated", "outcome_unknown")
		c.end()
		c = g.start(t, era)
		c.call(w.tool, w.args).is("escalated", "outcome_unknown")
		c.end()
		w.tap.executed(w.tool, 1)
		w.happened(t, 1)
	})
}

// TestEOFWhileTheToolHangs: the client is done, the tool never is. The server ends in its shutdown time; afterwards
// the outcome is not known.
func TestEOFWhileTheToolHangs(t *testing.T) {
	t.Parallel()
	w := appendLine(t)
	g := serve(t, w.tap.up, "shutdown: 1s")
	c := g.start(t, legacy)
	h := w.tap.holdAnswer(w.tool)
	c.sendCall(w.tool, w.args)
	h.at()
	c.end()
	w.tap.gone()
	c = g.start(t, legacy)
	for range 2 {
		c.call(w.tool, w.args).is("escalated", "outcome_unknown")
	}
	c.end()
	w.tap.executed(w.tool, 1)
	w.happened(t, 1)
}

// TestEditRevertEdit: state that goes back and forth is work, not repetition.
func TestEditRevertEdit(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "a.txt")
			writeFile(t, file, "one\n")
			tp := tapped(t, filesystem(t, dir))
			c := wrap(t, tp.up).start(t, era)
			change := func(from, to string) args {
				return args{"path": file, "edits": []any{args{"oldText": from, "newText": to}}}
			}
			first := c.call("edit_file", change("one\n", "two\n")).is("fresh", "")
			c.call("edit_file", change("two\n", "one\n")).is("fresh", "")
			third := c.call("edit_file", change("one\n", "two\n")).is("fresh", "")
			if first.says("occurrence") != "1" || third.says("occurrence") != "2" {
				t.Errorf("occurrences %s and %s, want 1 and 2", first.says("occurrence"), third.says("occurrence"))
			}
			c.end()
			tp.executed("edit_file", 3)
			if got := readFile(t, file); got != "two\n" {
				t.Errorf("the file says %q", got)
			}
		})
	}
}

// TestFirstAnswerIsReplayed: create_entities answers an empty list when it is executed again; a replay gives what the
// first one got.
func TestFirstAnswerIsReplayed(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, memory(t, filepath.Join(t.TempDir(), "m.jsonl")))
			g := wrap(t, tp.up)
			c := g.start(t, era)
			first := c.call("create_entities", ada).is("fresh", "")
			sameJSON(t, "guarded and own", first.own(), tp.last("create_entities").response["result"])
			c.call("create_entities", ada).repeats(first)
			c.end()
			c = g.start(t, era)
			c.call("create_entities", ada).repeats(first)
			c.end()
			tp.executed("create_entities", 1)
		})
	}
}

// TestRefusedThenCorrected: a refusal is shown as the tool said it, is never replayed, and the corrected call goes.
func TestRefusedThenCorrected(t *testing.T) {
	t.Parallel()
	tp := tapped(t, memory(t, filepath.Join(t.TempDir(), "m.jsonl")))
	c := wrap(t, tp.up).start(t, legacy)
	observe := args{"observations": []any{args{"entityName": "Ada", "contents": []any{"x"}}}}
	for range 2 {
		refused := c.call("add_observations", observe).is("fresh", "") // "Entity with name Ada not found"
		if refused.says("status") != "failed" || !refused.isError {
			t.Errorf("status %q, isError %v: %s", refused.says("status"), refused.isError, refused)
		}
		sameJSON(t, "guarded and own", refused.own(), tp.last("add_observations").response["result"])
	}
	tp.executed("add_observations", 2)
	c.call("create_entities", ada).is("fresh", "")
	if r := c.call("add_observations", observe).is("fresh", ""); r.says("status") != "succeeded" || r.isError {
		t.Errorf("the corrected call: %s", r)
	}
	c.end()
	tp.executed("add_observations", 3)
}

// TestTwoCommitsWithDifferentMessages: alike is not the same.
func TestTwoCommitsWithDifferentMessages(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := emptyCommit(t)
			c := wrap(t, w.tap.up).start(t, era)
			c.call(w.tool, w.args).is("fresh", "")
			c.call(w.tool, args{"path": w.args["path"], "message": "two", "allowEmpty": true}).is("fresh", "")
			c.end()
			w.tap.executed(w.tool, 2)
			w.happened(t, 2)
		})
	}
}

// TestPushCommitPush: the second push has the same arguments and another meaning, since there is a commit between.
func TestPushCommitPush(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := emptyCommit(t)
			repo := w.args["path"].(string)
			origin := filepath.Join(filepath.Dir(repo), "origin.git")
			push := args{"path": repo, "remote": "origin", "branch": "main"}
			c := wrap(t, w.tap.up).start(t, era)
			first := c.call("git_push", push).is("fresh", "")
			if n := commits(t, origin, "main"); n != 1 {
				t.Errorf("%d commits in the origin after the first push, want 1", n)
			}
			c.call("git_push", push).repeats(first) // nothing was written since
			c.call(w.tool, w.args).is("fresh", "")
			c.call("git_push", push).is("fresh", "")
			if n := commits(t, origin, "main"); n != 2 {
				t.Errorf("%d commits in the origin after the second push, want 2", n)
			}
			c.end()
			w.tap.executed("git_push", 2)
			w.happened(t, 1)
		})
	}
}

// TestAnotherPayloadIsHeld: while it is not known what became of a call, its reworded twin does not go out.
func TestAnotherPayloadIsHeld(t *testing.T) {
	t.Parallel()
	w := emptyCommit(t)
	c := wrap(t, w.tap.up).start(t, legacy)
	w.tap.holdAnswer(w.tool).let(die)
	c.call(w.tool, w.args).is("escalated", "outcome_unknown")
	c.call(w.tool, args{"path": w.args["path"], "message": "one, again", "allowEmpty": true}).is("blocked", "earlier_unknown")
	c.end()
	w.tap.executed(w.tool, 1)
	w.happened(t, 1)
}
