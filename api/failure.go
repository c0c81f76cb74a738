package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"syscall"
	"unicode"
)

// ErrorAnswer is the body of every answer with another status than 2xx.
type ErrorAnswer struct {
	Error string `json:"error"` // one line
}

// StatusError is wrapped by the error of a request that the agent refused.
type StatusError struct {
	Status int    // of HTTP, see docs/reference/socket.md
	Text   string // what the agent says is wrong, one line
}

// Error says both.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Text) }

// ErrMalformed is wrapped by the error of an answer that is none of the agent's.
var ErrMalformed = errors.New("what answers is no agent, or one of another version")

func malformed(cause error) error {
	return fmt.Errorf("%w: it says %s", ErrMalformed, oneLine(cause.Error()))
}

// failed says where something went wrong.
func (c *Client) failed(method, path string, cause error) error {
	return fmt.Errorf("ask the agent at %s: %s %s: %w", c.socket, method, path, cause)
}

// explain says what to do about a request that got no answer, or not all of it. ctx is the
// caller's.
func (c *Client) explain(ctx context.Context, err error) error {
	var inURL *url.Error // which says method and address once more
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("given up: %w", ctx.Err())
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v: its log says what it is busy with: %w", c.limit, err)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("there is no socket: start the agent, or name the socket of its configuration: %w", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no process listens there: start the agent: %w", err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("only root and the members of socketGroup may: %w", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("it hung up: it has too many connections, or it ended: try again: %w", err)
	}
	return fmt.Errorf("no answer: %w", err)
}

// refused reads what an answer with another status than 2xx says.
func refused(status int, text []byte) error {
	var said ErrorAnswer
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		return malformed(fmt.Errorf("status %d, %.200s", status, text))
	}
	return &StatusError{Status: status, Text: oneLine(said.Error)}
}

// maxText is how much of a text from the socket an error repeats.
const maxText = 2000

// oneLine is a text from the socket as it may stand in a log and on a terminal.
func oneLine(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "?")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(text), " "))
}
