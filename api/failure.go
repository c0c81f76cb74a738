package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// ErrorAnswer is the body of every answer with a status other than 2xx.
type ErrorAnswer struct {
	Error string `json:"error"` // one line
}

// StatusError reports that the agent rejected a request. The client's errors wrap it.
type StatusError struct {
	Status int    // HTTP status, see docs/reference/socket.md
	Text   string // error text of the agent, one line
}

// Error returns the status and the text.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Text) }

// ErrMalformed reports an answer that does not have the agent's format. The client's errors wrap
// it.
var ErrMalformed = errors.New("malformed answer, not from an agent or from another version of it")

func malformed(cause error) error {
	return fmt.Errorf("%w: %s", ErrMalformed, oneLine(cause.Error()))
}

// failed adds the agent's socket and the request to an error.
func (c *Client) failed(method, path string, cause error) error {
	return fmt.Errorf("agent at %s: %s %s: %w", c.socket, method, path, cause)
}

// explain adds a cause and a remedy to the error of a request without a complete answer. ctx is the
// caller's.
func (c *Client) explain(ctx context.Context, err error) error {
	var inURL *url.Error // repeats method and address
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("request ended by the caller: %w", ctx.Err())
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v: see the log of the agent: %w", c.limit, err)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("socket does not exist: start the agent, or use the socket that it is configured with: %w", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no process listens on the socket: start the agent: %w", err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("permission denied, %s: %w", c.admission(), err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the agent closed the connection: it has too many connections or has exited: try again: %w", err)
	}
	return fmt.Errorf("no answer: %w", err)
}

// admission returns how a user gets access to the socket.
func (c *Client) admission() string {
	info, err := os.Stat(c.socket)
	if err != nil { // a directory above is closed to this user
		return "run as root or join socketGroup"
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Gid == 0 || info.Mode()&0o020 == 0 {
		return "run as root, or set socketGroup in the agent's configuration and join it"
	}
	group := strconv.FormatUint(uint64(owner.Gid), 10)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return "run as root or join group " + group
}

// refused returns the error for an answer with a status other than 2xx.
func refused(status int, text []byte) error {
	var answer ErrorAnswer
	if json.Unmarshal(text, &answer) != nil || answer.Error == "" {
		return malformed(fmt.Errorf("status %d, %.200s", status, text))
	}
	return &StatusError{Status: status, Text: oneLine(answer.Error)}
}

// maxText limits the bytes of a text from the socket that an error quotes.
const maxText = 2000

// oneLine returns a text from the socket as one printable line, safe for logs and terminals.
func oneLine(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "?")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(text), " "))
}
