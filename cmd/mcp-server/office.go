package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// office is the sample office: a careless MCP server that does whatever it is told, as often as it is told.
type office struct {
	file  string
	fault string // "hang:TOOL": do it, then never answer; "die:TOOL": do it, then end

	mu    sync.Mutex
	books books
}

// books are what the office keeps in its file.
type books struct {
	Tickets  []ticket  `json:"tickets"`
	Invoices []invoice `json:"invoices"`
	Payments []payment `json:"payments"`
	Mail     []mail    `json:"mail"`
}

type ticket struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Status   string   `json:"status"`
	Comments []string `json:"comments,omitempty"`
}

type invoice struct {
	ID       string  `json:"id"`
	Supplier string  `json:"supplier"`
	Amount   float64 `json:"amount"`
	Paid     float64 `json:"paid"`
}

type payment struct {
	ID      string    `json:"payment_id"`
	Invoice string    `json:"invoice_id"`
	Amount  float64   `json:"amount"`
	Memo    string    `json:"memo,omitempty"`
	At      time.Time `json:"at"`
}

type mail struct {
	ID      string `json:"id"`
	To      string `json:"to"`
	Subject string `json:"subject"`
	Body    string `json:"body,omitempty"`
}

// openOffice reads the office's file, or begins one.
func openOffice(file, fault string) (*office, error) {
	o := &office{file: file, fault: fault}
	b, err := readBooks(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b = books{Invoices: []invoice{{"INV-1001", "Paper & Sons", 120.5, 0}, {"INV-1002", "City Power", 88, 0}, {"INV-1003", "Brew Coffee Co", 43.2, 0}}}
	case err != nil:
		return nil, err
	}
	o.books = b
	return o, nil
}

func readBooks(file string) (books, error) {
	var b books
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err != nil {
		err = fmt.Errorf("the office's books: %w", err)
	}
	return b, err
}

// save writes the books so that they are there whole, or as before.
func (o *office) save() error {
	data, err := json.MarshalIndent(o.books, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(o.file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(o.file+".new", o.file)
}

// serve speaks MCP until in ends.
func (o *office) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s := server.NewMCPServer("sample-office", "1.0.0", server.WithToolCapabilities(false),
		server.WithInstructions("The office of a small firm: tickets, invoices, and the mail that goes out."))
	o.addTickets(s)
	o.addInvoices(s)
	o.addMail(s)
	stdio := server.NewStdioServer(s)
	stdio.SetErrorLogger(log.New(io.Discard, "", 0))
	err := stdio.Listen(ctx, in, out)
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (o *office) addTickets(s *server.MCPServer) {
	add(o, s, mcp.NewTool("create_ticket", mcp.WithDescription("Opens a ticket"), writes,
		mcp.WithString("title", mcp.Required())),
		func(a struct{ Title string }) (any, error) {
			t := ticket{ID: fmt.Sprintf("T-%d", len(o.books.Tickets)+1), Title: a.Title, Status: "open"}
			o.books.Tickets = append(o.books.Tickets, t)
			return t, nil
		})
	add(o, s, mcp.NewTool("update_ticket", mcp.WithDescription("Sets a ticket's status"), writes,
		mcp.WithString("id", mcp.Required()), mcp.WithString("status", mcp.Required(), mcp.Enum("open", "waiting", "closed"))),
		func(a struct{ ID, Status string }) (any, error) {
			t, err := o.ticket(a.ID)
			if err == nil {
				t.Status = a.Status
			}
			return t, err
		})
	add(o, s, mcp.NewTool("comment_ticket", mcp.WithDescription("Adds a comment to a ticket"), writes,
		mcp.WithString("id", mcp.Required()), mcp.WithString("text", mcp.Required())),
		func(a struct{ ID, Text string }) (any, error) {
			t, err := o.ticket(a.ID)
			if err == nil {
				t.Comments = append(t.Comments, a.Text)
			}
			return t, err
		})
	add(o, s, mcp.NewTool("list_tickets", mcp.WithDescription("Lists the tickets"), reads),
		func(struct{}) (any, error) { return o.books.Tickets, nil })
}

func (o *office) ticket(id string) (*ticket, error) {
	i := slices.IndexFunc(o.books.Tickets, func(t ticket) bool { return t.ID == id })
	if i < 0 {
		return nil, fmt.Errorf("ticket %s not found", id)
	}
	return &o.books.Tickets[i], nil
}

func (o *office) addInvoices(s *server.MCPServer) {
	add(o, s, mcp.NewTool("pay_invoice", mcp.WithDescription("Pays an invoice, or a part of it"), writes,
		mcp.WithString("invoice_id", mcp.Required()), mcp.WithNumber("amount", mcp.Required()), mcp.WithString("memo")),
		func(a struct {
			Invoice string  `json:"invoice_id"`
			Amount  float64 `json:"amount"`
			Memo    string  `json:"memo"`
		}) (any, error) {
			i := slices.IndexFunc(o.books.Invoices, func(v invoice) bool { return v.ID == a.Invoice })
			switch {
			case i < 0:
				return nil, fmt.Errorf("invoice %s not found", a.Invoice)
			case a.Amount <= 0:
				return nil, fmt.Errorf("invalid amount %v", a.Amount)
			}
			p := payment{fmt.Sprintf("PAY-%d", len(o.books.Payments)+1), a.Invoice, a.Amount, a.Memo, time.Now().UTC()}
			o.books.Payments = append(o.books.Payments, p)
			o.books.Invoices[i].Paid += a.Amount
			return p, nil
		})
	add(o, s, mcp.NewTool("list_invoices", mcp.WithDescription("Lists the invoices and what was paid of them"), reads),
		func(struct{}) (any, error) { return o.books.Invoices, nil })
	add(o, s, mcp.NewTool("list_payments", mcp.WithDescription("Lists the payments made"), reads),
		func(struct{}) (any, error) { return o.books.Payments, nil })
}

func (o *office) addMail(s *server.MCPServer) {
	add(o, s, mcp.NewTool("send_mail", mcp.WithDescription("Sends a mail"), writes,
		mcp.WithString("to", mcp.Required()), mcp.WithString("subject", mcp.Required()), mcp.WithString("body")),
		func(a struct{ To, Subject, Body string }) (any, error) {
			m := mail{fmt.Sprintf("M-%d", len(o.books.Mail)+1), a.To, a.Subject, a.Body}
			o.books.Mail = append(o.books.Mail, m)
			return m, nil
		})
	add(o, s, mcp.NewTool("list_mail", mcp.WithDescription("Lists the mail that went out"), reads),
		func(struct{}) (any, error) { return o.books.Mail, nil })
}

func writes(t *mcp.Tool) { t.Annotations = mcp.ToolAnnotation{ReadOnlyHint: mcp.ToBoolPtr(false)} }

func reads(t *mcp.Tool) { t.Annotations = mcp.ToolAnnotation{ReadOnlyHint: mcp.ToBoolPtr(true)} }

// add offers a tool. What it does is in the file before it answers, if it answers.
func add[A any](o *office, s *server.MCPServer, t mcp.Tool, do func(A) (any, error)) {
	s.AddTool(t, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a A
		if err := r.BindArguments(&a); err != nil {
			return mcp.NewToolResultError("invalid arguments: " + err.Error()), nil
		}
		result, err := o.do(func() (any, error) { return do(a) }, t.Annotations.ReadOnlyHint != nil && *t.Annotations.ReadOnlyHint)
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		if kind, name, _ := strings.Cut(o.fault, ":"); name == t.Name {
			if kind == "die" {
				os.Exit(1)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return mcp.NewToolResultText(string(result)), nil
	})
}

// do does one thing at a time, with the books as the offices of other servers left them, and returns its result as JSON.
func (o *office) do(do func() (any, error), read bool) (json.RawMessage, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b, err := readBooks(o.file); err == nil {
		o.books = b
	}
	result, err := do()
	if err != nil {
		return nil, err
	}
	if !read {
		if err := o.save(); err != nil {
			return nil, fmt.Errorf("the books cannot be written: %w", err)
		}
	}
	return json.Marshal(result)
}
