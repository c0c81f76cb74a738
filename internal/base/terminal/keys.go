package terminal

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/term"
)

// Keys with names. Other keys are the typed character.
const (
	KeyLeft  = "left"
	KeyRight = "right"
	KeyQuit  = "\x03" // control-C, which sends no signal while keys are read
)

// arrows maps the last byte of an arrow key's escape sequence to its name.
var arrows = map[byte]string{'A': "up", 'B': "down", 'C': KeyRight, 'D': KeyLeft}

// Keys reads typed keys from a terminal without echo. It has a goroutine that ends with the input.
// If nothing more is typed it ends with the process, because a read of a terminal cannot
// be cancelled.
type Keys struct {
	C        <-chan string // closed at the end of the input
	file     *os.File
	previous *term.State
}

// Read starts to read keys, and sends them until ctx ends.
func Read(ctx context.Context, in *os.File) (*Keys, error) {
	previous, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	c := make(chan string)
	go func() {
		defer close(c)
		buffer := make([]byte, 64)
		for {
			n, err := in.Read(buffer)
			for _, key := range split(buffer[:n]) {
				select {
				case c <- key:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return &Keys{C: c, file: in, previous: previous}, nil
}

// Close restores the terminal's mode.
func (k *Keys) Close() error { return term.Restore(int(k.file.Fd()), k.previous) }

// split returns the keys in the bytes of one read.
func split(b []byte) (keys []string) {
	for len(b) > 0 {
		if len(b) >= 3 && b[0] == 0x1b && (b[1] == '[' || b[1] == 'O') {
			if name := arrows[b[2]]; name != "" {
				keys = append(keys, name)
			}
			b = b[3:]
			continue
		}
		keys = append(keys, string(b[:1]))
		b = b[1:]
	}
	return keys
}
