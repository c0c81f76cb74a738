package terminal

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/term"
)

// Keys that have names. Others are what they type.
const (
	KeyLeft  = "left"
	KeyRight = "right"
	KeyQuit  = "\x03" // control-C, which ends nothing by itself while keys are read
)

// arrows by the last byte of what a terminal sends for them.
var arrows = map[byte]string{'A': "up", 'B': "down", 'C': KeyRight, 'D': KeyLeft}

// Keys reads what is typed on a terminal, key by key and without showing it. It owns a goroutine,
// which ends with the input, or with the process where nothing more is typed: a terminal cannot be
// waited for otherwise.
type Keys struct {
	C    <-chan string // closed at the end of the input
	file *os.File
	was  *term.State
}

// Read begins to read keys. ctx ends what is handed over.
func Read(ctx context.Context, in *os.File) (*Keys, error) {
	was, err := term.MakeRaw(int(in.Fd()))
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
	return &Keys{C: c, file: in, was: was}, nil
}

// Close has the terminal be as it was.
func (k *Keys) Close() error { return term.Restore(int(k.file.Fd()), k.was) }

// split finds the keys in what a terminal has sent at once.
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
