package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"toolguard.dev/keyderive"
)

// Kind says what an expression is about, and with it which names it sees.
type Kind int

const (
	// KindArguments sees args, context and tool.
	KindArguments Kind = iota + 1
	// KindAnswer sees result too: result.json, result.text, result.is_error, result.status.
	KindAnswer
)

// Bounds on expressions.
const (
	maxExpression = 10_000    // code points of the source
	maxNodes      = 5_000     // nodes, after macros
	maxCost       = 1_000_000 // CEL's measure of work, for one evaluation
)

// Expression is a compiled CEL expression of a policy. It does not change and may be used from any number of
// goroutines. Its String is its source.
type Expression struct {
	source  string
	kind    Kind
	program cel.Program
	boolean bool // may give a bool
	textual bool // may give a text or a number
}

// Input is what an expression sees.
type Input struct {
	Arguments any             // args: what keyderive.Parse made; nil counts as {}
	Facts     keyderive.Facts // context: the facts that are known, by their names
	Tool      string          // tool: server/tool
	Answer    *Answer         // result; only for [KindAnswer]
}

// Members that expressions may name; others are taken for misspelt.
var (
	contextMembers = []string{"tenant", "workflow", "source_event", "request", "run", "step", "session", "actor",
		"call_id", "workflow_version", "client"}
	resultMembers = []string{"json", "text", "is_error", "status"}
)

var environments = sync.OnceValues(func() (map[Kind]*cel.Env, error) {
	arguments, err := cel.NewEnv(
		cel.CustomTypeAdapter(adapter{}),
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ExpressionNodeLimit(maxNodes),
		cel.Variable("args", cel.DynType),
		cel.Variable("context", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("tool", cel.StringType),
	)
	if err != nil {
		return nil, err
	}
	answer, err := arguments.Extend(cel.Variable("result", cel.MapType(cel.StringType, cel.DynType)))
	return map[Kind]*cel.Env{KindArguments: arguments, KindAnswer: answer}, err
})

// CompileExpression compiles a CEL expression. The error wraps [ErrPolicy] and says in one line what is wrong,
// and where (line:column).
func CompileExpression(source string, kind Kind) (x *Expression, err error) {
	defer func() {
		if r := recover(); r != nil {
			x, err = nil, fmt.Errorf("%w: the expression %.100q cannot be compiled", ErrPolicy, source)
		}
	}()
	all, err := environments()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	env, ok := all[kind]
	if !ok {
		return nil, fmt.Errorf("%w: there is no kind %d of expressions", ErrPolicy, kind)
	}
	if strings.TrimSpace(source) == "" {
		return nil, fmt.Errorf("%w: an expression is empty", ErrPolicy)
	}
	checked, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, expressionError(source, issues.Errors()[0])
	}
	for _, misspelt := range unknownMembers(checked.NativeRep()) {
		return nil, expressionError(source, misspelt)
	}
	program, err := env.Program(checked, cel.CostLimit(maxCost))
	if err != nil {
		return nil, fmt.Errorf("%w: expression %.100q: %s", ErrPolicy, source, oneLine(err.Error(), maxSentence))
	}
	x = &Expression{source: strings.Clone(source), kind: kind, program: program}
	switch out := checked.OutputType(); out.Kind() {
	case types.DynKind:
		x.boolean, x.textual = true, true
	case types.BoolKind:
		x.boolean = true
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.OpaqueKind:
		x.textual = true
	}
	return x, nil
}

func expressionError(source string, e *common.Error) error {
	return fmt.Errorf("%w: expression %.100q: %d:%d: %s", ErrPolicy, source,
		e.Location.Line(), e.Location.Column()+1, oneLine(e.Message, maxSentence))
}

// unknownMembers finds members of context and result that there are not.
func unknownMembers(a *ast.AST) []*common.Error {
	var out []*common.Error
	for _, e := range ast.MatchDescendants(ast.NavigateAST(a), ast.KindMatcher(ast.SelectKind)) {
		operand, name := e.AsSelect().Operand(), e.AsSelect().FieldName()
		if operand.Kind() != ast.IdentKind {
			continue
		}
		known := map[string][]string{"context": contextMembers, "result": resultMembers}[operand.AsIdent()]
		if known != nil && !slices.Contains(known, name) {
			out = append(out, &common.Error{
				Location: a.SourceInfo().GetStartLocation(e.ID()),
				Message:  fmt.Sprintf("%s has no %s, only %s", operand.AsIdent(), name, strings.Join(known, ", ")),
			})
		}
	}
	return out
}

// String returns the source.
func (x *Expression) String() string {
	if x == nil {
		return "(none)"
	}
	return x.source
}

// MarshalText makes an expression's source stand for it in JSON.
func (x *Expression) MarshalText() ([]byte, error) { return []byte(x.source), nil }

// Bool evaluates a condition. Anything but a bool is an error.
func (x *Expression) Bool(in Input) (bool, error) { return x.bool(&activation{in: in}) }

func (x *Expression) bool(a *activation) (bool, error) {
	v, err := x.eval(a)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, fmt.Errorf("expression %.100q gave no bool but %s", x.source, typeName(v))
	}
	return bool(b), nil
}

// Text evaluates an expression that gives a string, or a number, whose digits it then is. Anything else, and a
// number that is not known exactly, is an error.
func (x *Expression) Text(in Input) (string, error) { return x.text(&activation{in: in}) }

func (x *Expression) text(a *activation) (string, error) {
	v, err := x.eval(a)
	if err != nil {
		return "", err
	}
	if o, ok := v.(*types.Optional); ok && o.HasValue() {
		v = o.GetValue()
	}
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Int:
		return strconv.FormatInt(int64(v), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), nil
	case types.Double:
		if math.Abs(float64(v)) < 1<<53 {
			return strconv.FormatFloat(float64(v), 'f', -1, 64), nil
		}
		return "", fmt.Errorf("expression %.100q gave a number that is not known exactly", x.source)
	}
	return "", fmt.Errorf("expression %.100q gave neither text nor number but %s", x.source, typeName(v))
}

func typeName(v ref.Val) string {
	if v == nil {
		return "nothing"
	}
	return v.Type().TypeName()
}

func (x *Expression) eval(a *activation) (v ref.Val, err error) {
	if x == nil || x.program == nil {
		return nil, errors.New("there is no expression")
	}
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, fmt.Errorf("expression %.100q could not be evaluated", x.source)
		}
	}()
	v, _, err = x.program.Eval(a)
	if err != nil {
		return nil, fmt.Errorf("expression %.100q: %s", x.source, oneLine(err.Error(), maxSentence))
	}
	return v, nil
}

// activation gives an expression what it asks for, converted when it asks. It serves one goroutine.
type activation struct {
	in     Input
	view   *view // of in.Answer, once known
	result ref.Val
}

// Parent implements [cel.Activation].
func (a *activation) Parent() cel.Activation { return nil }

// ResolveName implements [cel.Activation].
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "args":
		if a.in.Arguments == nil {
			return map[string]any{}, true
		}
		return a.in.Arguments, true
	case "context":
		return known(&a.in.Facts), true
	case "tool":
		return a.in.Tool, true
	case "result":
		if a.in.Answer == nil {
			return nil, false
		}
		if a.result == nil {
			a.result = a.makeResult()
		}
		return a.result, true
	}
	return nil, false
}

func (a *activation) makeResult() ref.Val {
	if a.view == nil {
		a.view = a.in.Answer.view()
	}
	return adapter{}.NativeToValue(map[string]any{
		"json":     a.view.json(),
		"text":     a.view.text,
		"is_error": a.view.isError,
		"status":   a.in.Answer.Status,
	})
}

// known returns the facts that are not "", by their names.
func known(f *keyderive.Facts) map[string]any {
	out := make(map[string]any, 4)
	for i, value := range []string{f.Tenant, f.Workflow, f.SourceEvent, f.Request, f.Run, f.Step, f.Session, f.Actor,
		f.CallID, f.WorkflowVersion, f.Client} {
		if value != "" {
			out[contextMembers[i]] = value
		}
	}
	return out
}

// adapter converts JSON values for CEL one level at a time. Whole numbers of 64 bits are exact, others doubles.
type adapter struct{}

// NativeToValue implements [types.Adapter].
func (adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case json.Number:
		return number(string(v))
	case map[string]any:
		return types.NewStringInterfaceMap(adapter{}, v)
	case []any:
		return types.NewList(adapter{}, v)
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

func number(s string) ref.Val {
	if strings.ContainsAny(s, ".eE") { // Parse leaves whole numbers of 64 bits without these; others may not
		if n, err := keyderive.Number(s); err == nil {
			s = string(n)
		}
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(s, 10, 64); err == nil {
		return types.Uint(u)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return types.NewErr("%q is no number", s)
	}
	return types.Double(f)
}
