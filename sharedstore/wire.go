package sharedstore

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"toolguard.dev/codec"
	"toolguard.dev/toolguard"
)

// A connection carries frames: the length of the rest (4 bytes), the number of the request (8), a kind (1), a body.
// The first frame each way is a hello. Requests may be many at a time; each but a lazy write gets one answer under its
// number, in any order.
const (
	protocol = 2

	headSize    = 4 + 8 + 1
	maxRequest  = 16 << 20  // more than the largest write that a store takes
	maxResponse = 256 << 20 // all open operations, say
	maxHello    = 4 << 10

	helloTimeout = 5 * time.Second
	writeTimeout = 10 * time.Second // to a peer that does not read
	queueLength  = 256              // frames waiting to be written on a connection
)

// Kinds of frames.
const (
	kindHello byte = iota
	kindCommit
	kindLazy // a write that gets no answer
	kindFlush
	kindOperations
	kindBody
	kindEvents
	kindDocument

	kindDone  // the answer
	kindError // a sentinel's place and a text
	kindAway  // never sent: none came in time
)

// eventsOf is a request for events, documentOf the answer to one for a document, and stamps the answer to a write.
type (
	eventsOf struct {
		Key   string // of an operation; "": all
		After uint64
		Limit int
	}
	documentOf struct {
		Data []byte
		Rev  uint64
	}
	stamps struct {
		Rev, Dispatched uint64
		Token           string
		Events          []linked
	}
	linked struct {
		Chain      string
		ChainSeq   uint64
		Prev, Hash string
		Seq        uint64
	}
)

// types names the layout of everything that is sent.
var types = codec.Layout(reflect.TypeFor[toolguard.Write](), reflect.TypeFor[toolguard.Query](), reflect.TypeFor[toolguard.Page](),
	reflect.TypeFor[toolguard.Body](), reflect.TypeFor[toolguard.Event](), reflect.TypeFor[eventsOf](), reflect.TypeFor[documentOf](), reflect.TypeFor[stamps]())

// hello is how both ends begin, as JSON: every version can read it.
type hello struct {
	Protocol int    `json:"toolguard_store"`
	Types    string `json:"types"`
	Process  string `json:"process"`
	Refused  string `json:"refused,omitempty"`
}

// ErrVersion: the process that holds the ledger runs another version of the program, and the two would not understand
// each other.
var ErrVersion = errors.New("the process that holds the ledger runs another version of toolguard")

// fits says why two ends cannot work together; nil: they can.
func (h *hello) fits() error {
	if h.Protocol != protocol || h.Types != types {
		return fmt.Errorf("%w (it speaks protocol %d/%.8s, this one %d/%.8s): end it, or use the same version everywhere", ErrVersion, h.Protocol, h.Types, protocol, types)
	}
	return nil
}

// used are frames that were sent, to be used again.
var used sync.Pool

const maxUsed = 64 << 10 // bytes of a frame that is worth keeping

// newFrame begins a frame with room for so many bytes; seal ends it.
func newFrame(id uint64, kind byte, room int) []byte {
	b := make([]byte, 0)
	if f, ok := used.Get().(*[]byte); ok {
		b = *f
	}
	b = slices.Grow(b[:0], headSize+room)[:headSize]
	binary.BigEndian.PutUint64(b[4:], id)
	b[12] = kind
	return b
}

func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// readFrame reads one frame whose body has at most limit bytes.
func readFrame(r *bufio.Reader, limit int) (id uint64, kind byte, body string, err error) {
	head, err := r.Peek(headSize)
	if err != nil {
		return 0, 0, "", err
	}
	n := int64(binary.BigEndian.Uint32(head)) - (headSize - 4)
	if n < 0 || n > int64(limit) {
		return 0, 0, "", fmt.Errorf("a frame of %d bytes: %w", n, codec.ErrDamaged)
	}
	id, kind = binary.BigEndian.Uint64(head[4:]), head[12]
	if _, err := r.Discard(headSize); err != nil {
		return 0, 0, "", err
	}
	if text, err := r.Peek(int(n)); err == nil { // it fits into the reader's buffer
		body = string(text)
		_, err := r.Discard(int(n))
		return id, kind, body, err
	} else if !errors.Is(err, bufio.ErrBufferFull) {
		return 0, 0, "", err
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return 0, 0, "", err
	}
	return id, kind, string(text), nil
}

func writeHello(c net.Conn, h hello) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = c.Write(seal(append(newFrame(0, kindHello, 256), text...)))
	return err
}

func readHello(r *bufio.Reader) (h hello, err error) {
	_, kind, text, err := readFrame(r, maxHello)
	if err == nil && kind != kindHello {
		err = codec.ErrDamaged
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &h)
	}
	return h, err
}

// writeFrames writes what comes in until stop is closed and the queue is empty, several frames at once where they
// wait, or until the peer takes nothing any more.
func writeFrames(c net.Conn, frames <-chan []byte, stop <-chan struct{}) error {
	w := bufio.NewWriterSize(c, 64<<10)
	write := func(f []byte) error {
		if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(f); err != nil {
			return err
		}
		if f[12] != kindLazy && cap(f) <= maxUsed { // lazy ones may be sent once more
			used.Put(&f)
		}
		if len(frames) == 0 {
			runtime.Gosched() // who is about to send may do so first: a write, and a reader woken, cost more than a frame
		}
		if len(frames) == 0 {
			return w.Flush()
		}
		return nil
	}
	for {
		select {
		case f := <-frames:
			if err := write(f); err != nil {
				return err
			}
		case <-stop:
			for {
				select {
				case f := <-frames:
					if err := write(f); err != nil {
						return err
					}
				default:
					return w.Flush()
				}
			}
		}
	}
}

// sentinels are the errors that keep their identity on the way; their place in the list is what is sent.
var sentinels = []error{toolguard.ErrConflict, toolguard.ErrNotFound, toolguard.ErrStoreFull, toolguard.ErrTooLarge,
	toolguard.ErrFormat, toolguard.ErrStoreBroken, toolguard.ErrStoreAway}

func errorFrame(id uint64, err error) []byte {
	b := append(newFrame(id, kindError, 256), 0)
	for i, s := range sentinels {
		if errors.Is(err, s) {
			b[headSize] = byte(i + 1)
			break
		}
	}
	return seal(append(b, err.Error()...))
}

// remoteError is an error of the owner's store.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

func readError(text string) error {
	if text == "" {
		return codec.ErrDamaged
	}
	e := &remoteError{text: text[1:]}
	if n := int(text[0]); n > 0 && n <= len(sentinels) {
		e.is = sentinels[n-1]
	}
	if e.is != nil && e.text == e.is.Error() {
		return e.is
	}
	return e
}
