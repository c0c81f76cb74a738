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

// Logical connections within the socket (nri v0.12.5 pkg/net/multiplex): a frame consists of the
// connection and the length of the payload, 4 bytes each, big endian, and the payload.
const (
	pluginConn  = 1 // requests of the runtime
	runtimeConn = 2 // requests of the plugin
	frameHeader = 8
)

// Messages within a logical connection (ttrpc v1.2.7 channel.go): length and stream, 4 bytes each,
// big endian, a byte of type, a byte of flags, and the body. A message may be cut into several
// frames.
const (
	messageHeader = 10
	typeRequest   = 1
	typeResponse  = 2
	remoteClosed  = 1 // flag of a request: no more data in its stream
	maxMessage    = 4 << 20
	// maxSend keeps a message in one frame that fits the peer's read buffer. For a larger frame the
	// peer's multiplexer fails with ENOMEM (multiplex/mux.go, conn.Read; bufio's default size).
	maxSend = 4096 - messageHeader
)

// Time limits for the runtime, and a limit for kept memory.
const (
	stallLimit    = 10 * time.Second // to complete a frame
	writeLimit    = time.Second      // to accept an answer
	maxKeptBuffer = 64 << 10         // a larger buffer, of a Synchronize, is freed
)

// errIdle reports that no message was received until the deadline.
var errIdle = errors.New("no message before the deadline")

// message is one ttrpc message. Its body is valid until the next message is read.
type message struct {
	conn, stream uint32
	kind         byte
	body         []byte
	tooLong      bool // longer than maxMessage: body is empty
}

// wire reads and writes ttrpc messages. It is not safe for concurrent use.
type wire struct {
	c   stream
	br  *bufio.Reader
	in  [runtimeConn + 1]assembly // by connection
	out []byte
}

// assembly holds the received data of a logical connection: incomplete messages, and messages that
// are not consumed yet.
type assembly struct {
	buf  []byte
	off  int    // buf[:off] was consumed
	skip uint64 // remaining bytes of a message that is too long
	last message
}

func newWire(c stream) *wire {
	return &wire{c: c, br: bufio.NewReaderSize(c, 8<<10)}
}

// next returns the next message, or errIdle at the deadline; the zero deadline means no deadline.
func (w *wire) next(deadline time.Time) (message, error) {
	for {
		for conn := range w.in {
			if m, ok := w.in[conn].take(); ok {
				m.conn = uint32(conn)
				return m, nil
			}
			w.in[conn].release()
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
		return fmt.Errorf("frame of %d bytes: the peer does not speak NRI", length)
	}
	if conn >= uint32(len(w.in)) {
		_, err := w.br.Discard(int(length))
		return err
	}
	return w.in[conn].read(w.br, int(length))
}

// release frees a large buffer that was consumed: the next frame may come hours later.
func (a *assembly) release() {
	if a.off == len(a.buf) && cap(a.buf) > maxKeptBuffer {
		a.off, a.buf = 0, nil
	}
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
	// no frame has ended at the end of a message for long: drop the consumed data now
	case a.off > maxKeptBuffer:
		a.off, a.buf = 0, append([]byte(nil), a.buf[a.off:]...)
	}
	// The buffer grows with the received bytes, not with the length in the header.
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

// take returns the next message if it is complete.
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
		return fmt.Errorf("message has %d bytes, limit is %d", len(body), maxSend)
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

// Codes of google.rpc.Status.
const (
	codeUnknown       = 2
	codeUnimplemented = 12
)

// maxText limits the text of an error, so that the message fits maxSend.
const maxText = maxSend - 64

// truncateText shortens a text so that it fits a message, and makes it valid UTF-8, so that the
// runtime can decode it. If the runtime received no valid error, it would admit the pod.
func truncateText(text string) string {
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
		status = appendString(status, 2, truncateText(text))
		body = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), status)
	}
	if len(payload) > 0 {
		body = protowire.AppendBytes(protowire.AppendTag(body, 2, protowire.BytesType), payload)
	}
	return w.send(pluginConn, stream, typeResponse, 0, body)
}

// register requests the registration of this plugin.
func (w *wire) register(name, index string) error {
	payload := appendString(appendString(nil, 1, name), 2, index)
	body := appendString(appendString(nil, 1, "nri.pkg.api.v1alpha1.Runtime"), 2, "RegisterPlugin")
	body = protowire.AppendBytes(protowire.AppendTag(body, 3, protowire.BytesType), payload)
	// a client uses odd stream numbers (ttrpc client.go)
	return w.send(runtimeConn, 1, typeRequest, remoteClosed, body)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}
