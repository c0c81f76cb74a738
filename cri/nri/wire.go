package nri

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Logical connections within the socket (nri v0.12.5 pkg/net/multiplex): a frame is the connection
// and the length of its payload, 4 bytes each, big endian, and the payload.
const (
	pluginConn  = 1 // the runtime asks
	runtimeConn = 2 // the plugin asks
	frameHeader = 8
)

// Messages within a logical connection (ttrpc v1.2.7 channel.go): length and stream, 4 bytes each,
// big endian, a byte of type, a byte of flags, and the body. A message may be cut into several
// frames.
const (
	messageHeader = 10
	typeRequest   = 1
	typeResponse  = 2
	remoteClosed  = 1 // flag of a request: nothing follows in its stream
	maxMessage    = 4 << 20
	// maxSend keeps a message in one frame that fits the peer's read buffer: its multiplexer answers
	// ENOMEM where it does not (multiplex/mux.go, conn.Read; bufio's default size).
	maxSend = 4096 - messageHeader
)

// Limits of what the runtime may take its time for.
const (
	stallLimit = 10 * time.Second // to finish a frame that it began
	writeLimit = time.Second      // to take an answer
	keepBuffer = 64 << 10         // a larger buffer, of a Synchronize, is given back
)

// errIdle: nothing came until the deadline.
var errIdle = errors.New("nothing came")

// message is one ttrpc message. Its body is valid until the next one is read.
type message struct {
	conn, stream uint32
	kind         byte
	body         []byte
	tooLong      bool // longer than maxMessage: body is empty
}

// wire reads and writes ttrpc messages. It is used by one goroutine.
type wire struct {
	c   stream
	br  *bufio.Reader
	in  [runtimeConn + 1]assembly // by connection
	out []byte
}

// assembly is what was read of a logical connection and is not a whole message yet, or not taken.
type assembly struct {
	buf  []byte
	off  int    // buf[:off] was taken
	skip uint64 // of a message that is too long: bytes that are still to come
	last message
}

func newWire(c stream) *wire {
	return &wire{c: c, br: bufio.NewReaderSize(c, 8<<10)}
}

// next returns the next message, or errIdle at the deadline; the zero deadline is none.
func (w *wire) next(deadline time.Time) (message, error) {
	for {
		for conn := range w.in {
			if m, ok := w.in[conn].take(); ok {
				m.conn = uint32(conn)
				return m, nil
			}
		}
		if err := w.frame(deadline); err != nil {
			return message{}, err
		}
	}
}

// frame reads one frame.
func (w *wire) frame(deadline time.Time) error {
	if w.br.Buffered() == 0 {
		if err := w.c.SetReadDeadline(deadline); err != nil {
			return err
		}
		if _, err := w.br.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
			return errIdle
		} else if err != nil {
			return err
		}
	}
	if err := w.c.SetReadDeadline(time.Now().Add(stallLimit)); err != nil {
		return err
	}
	var header [frameHeader]byte
	if _, err := io.ReadFull(w.br, header[:]); err != nil {
		return err
	}
	conn, length := binary.BigEndian.Uint32(header[:4]), binary.BigEndian.Uint32(header[4:])
	if length > maxMessage+messageHeader {
		return fmt.Errorf("a frame of %d bytes: this is not the NRI", length)
	}
	if conn >= uint32(len(w.in)) {
		_, err := w.br.Discard(int(length))
		return err
	}
	return w.in[conn].read(w.br, int(length))
}

// read adds a frame's payload.
func (a *assembly) read(r *bufio.Reader, length int) error {
	if dropped := min(a.skip, uint64(length)); dropped > 0 {
		if _, err := r.Discard(int(dropped)); err != nil {
			return err
		}
		a.skip -= dropped
		length -= int(dropped)
	}
	switch {
	case a.off == len(a.buf):
		a.off, a.buf = 0, a.buf[:0]
		if cap(a.buf) > keepBuffer {
			a.buf = nil
		}
	// no frame has ended with a message for long: what was taken goes all the same
	case a.off > keepBuffer:
		a.off, a.buf = 0, append([]byte(nil), a.buf[a.off:]...)
	}
	// Grown as bytes come, not as a header promises: a promise costs nothing.
	for length > 0 {
		at, part := len(a.buf), min(length, 64<<10)
		a.buf = append(a.buf, make([]byte, part)...)
		if _, err := io.ReadFull(r, a.buf[at:]); err != nil {
			return err
		}
		length -= part
	}
	return nil
}

// take returns the next message if it is whole.
func (a *assembly) take() (message, bool) {
	if a.last.tooLong && a.skip == 0 {
		m := a.last
		a.last = message{}
		return m, true
	}
	b := a.buf[a.off:]
	if a.skip > 0 || len(b) < messageHeader {
		return message{}, false
	}
	length := uint64(binary.BigEndian.Uint32(b[:4]))
	m := message{stream: binary.BigEndian.Uint32(b[4:8]), kind: b[8]}
	b = b[messageHeader:]
	if length > maxMessage {
		here := min(length, uint64(len(b)))
		a.off += messageHeader + int(here)
		a.skip = length - here
		m.tooLong, a.last = true, m
		a.last.tooLong = true
		return a.take()
	}
	if uint64(len(b)) < length {
		return message{}, false
	}
	m.body = b[:length:length]
	a.off += messageHeader + int(length)
	return m, true
}

// send writes one message in one frame.
func (w *wire) send(conn, stream uint32, kind, flags byte, body []byte) error {
	if len(body) > maxSend {
		return fmt.Errorf("a message of %d bytes, at most %d are sent", len(body), maxSend)
	}
	b := binary.BigEndian.AppendUint32(w.out[:0], conn)
	b = binary.BigEndian.AppendUint32(b, uint32(messageHeader+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, stream)
	b = append(append(b, kind, flags), body...)
	w.out = b
	if err := w.c.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	_, err := w.c.Write(b)
	return err
}

// Codes of google.rpc.Status that are used.
const (
	codeUnknown       = 2
	codeUnimplemented = 12
)

// maxText is how much of an error's text is sent: with what is around it, it fits maxSend.
const maxText = maxSend - 64

// sendable is as much of a text as is sent, in whole characters, and without what is none, which
// the runtime would not decode. An error that does not get there is a pod that is let in: the
// runtime lets all pass whose plugin does not answer.
func sendable(text string) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) <= maxText {
		return text
	}
	at := maxText
	for !utf8.RuneStart(text[at]) {
		at--
	}
	return text[:at]
}

// respond answers a request: with a payload, or with an error if code is not 0.
func (w *wire) respond(stream uint32, payload []byte, code uint64, text string) error {
	var body []byte
	if code != 0 {
		status := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), code)
		status = appendString(status, 2, sendable(text))
		body = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), status)
	}
	if len(payload) > 0 {
		body = protowire.AppendBytes(protowire.AppendTag(body, 2, protowire.BytesType), payload)
	}
	return w.send(pluginConn, stream, typeResponse, 0, body)
}

// register asks the runtime to take this plugin.
func (w *wire) register(name, index string) error {
	payload := appendString(appendString(nil, 1, name), 2, index)
	body := appendString(appendString(nil, 1, "nri.pkg.api.v1alpha1.Runtime"), 2, "RegisterPlugin")
	body = protowire.AppendBytes(protowire.AppendTag(body, 3, protowire.BytesType), payload)
	// the streams of a client are odd (ttrpc client.go)
	return w.send(runtimeConn, 1, typeRequest, remoteClosed, body)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}
