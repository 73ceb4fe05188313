package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

const maxNote = 4 << 10

// note is what the person wrote.
func (v *visit) note() (string, error) {
	note := strings.TrimSpace(v.r.PostFormValue("note"))
	if len(note) > maxNote {
		return "", sentence{http.StatusRequestEntityTooLarge, fmt.Sprintf("A note has at most %d bytes. Nothing was decided.", maxNote)}
	}
	return note, nil
}

// number reads what was looked at.
func (v *visit) number(name string) (int, error) {
	n, err := strconv.Atoi(v.r.PostFormValue(name))
	if err != nil || n < 0 {
		return 0, sentence{http.StatusBadRequest, "The form could not be read. Nothing was decided."}
	}
	return n, nil
}

// done shows what a decision came to.
func (v *visit) done(path, word string) {
	http.Redirect(v.w, v.r, path+"?said="+word+"."+v.session.seal(path+word), http.StatusSeeOther)
}

// decide says yes or no to a request for approval.
func (v *visit) decide() error {
	note, err := v.note()
	if err != nil {
		return err
	}
	verdict, digest := v.r.PostFormValue("verdict"), v.r.PostFormValue("digest")
	if verdict != "approve" && verdict != "reject" || digest == "" {
		return sentence{http.StatusBadRequest, "The form could not be read. Nothing was decided."}
	}
	approve := verdict == "approve"
	op, err := v.desk.Decide(v.r.Context(), toolguard.ApprovalVerdict{ID: v.r.PathValue("id"), Approve: approve, Digest: digest, Note: note})
	if err != nil {
		return err
	}
	word := map[bool]string{true: "approved", false: "rejected"}[approve]
	if op.Seen != nil && verdict != "repeat" {
		word = "seen"
	}
	v.done("/operations/"+url.PathEscape(op.Key), word)
	return nil
}

// settle says what became of an operation, or has it repeated.
func (v *visit) settle() error {
	note, err := v.note()
	if err != nil {
		return err
	}
	occurrence, err := v.number("occurrence")
	if err != nil {
		return err
	}
	key, verdict, force := v.r.PathValue("key"), v.r.PostFormValue("verdict"), v.r.PostFormValue("force") != ""
	if verdict == "repeat" {
		op, err := v.desk.Repeat(v.r.Context(), toolguard.RepeatOrder{Key: key, Occurrence: occurrence, Note: note, Force: force})
		return v.settled(op, err, verdict)
	}
	attempt, err := v.number("attempt")
	if err != nil {
		return err
	}
	r := toolguard.Resolution{Key: key, Verdict: verdict, Occurrence: occurrence, Attempt: attempt, Note: note}
	switch verdict {
	case toolguard.VerdictApplied:
		r.DownstreamID = strings.TrimSpace(v.r.PostFormValue("downstream_id"))
		if r.Result, err = people.Result(strings.TrimSpace(v.r.PostFormValue("result"))); err != nil {
			return sentence{http.StatusBadRequest, "The result is " + plain(err.Error()) + ". Nothing was decided."}
		}
	case toolguard.VerdictNotApplied:
		r.Force = force
	case toolguard.VerdictAbandoned:
	default:
		return sentence{http.StatusBadRequest, "The form could not be read. Nothing was decided."}
	}
	op, err := v.desk.Resolve(v.r.Context(), r)
	return v.settled(op, err, verdict)
}

func (v *visit) settled(op *toolguard.Operation, err error, verdict string) error {
	if err != nil {
		return err
	}
	word := map[string]string{toolguard.VerdictApplied: "applied", toolguard.VerdictNotApplied: "failed", toolguard.VerdictAbandoned: "abandoned", "repeat": "allowed"}[verdict]
	if !op.Status.Final() && op.Ordered != nil {
		word = "ordered"
	}
	v.done("/operations/"+url.PathEscape(op.Key), word)
	return nil
}
