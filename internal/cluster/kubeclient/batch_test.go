package kubeclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// counting counts the reads of a connection.
type counting struct {
	net.Conn
	reads int
}

func (c *counting) Read(b []byte) (int, error) {
	c.reads++
	return c.Conn.Read(b)
}

// batchedPipe returns a batched connection, its other end and its number of reads.
func batchedPipe(t *testing.T, gap time.Duration) (c net.Conn, other net.Conn, reads *int) {
	t.Helper()
	here, there := net.Pipe()
	counted := &counting{Conn: here}
	config := BatchedReads(&rest.Config{Dial: func(context.Context, string, string) (net.Conn, error) { return counted, nil }}, gap)
	c, err := config.Dial(t.Context(), "tcp", "api")
	if err != nil {
		t.Fatal(err)
	}
	return c, there, &counted.reads
}

// The data arrives complete and in order, whatever the sizes of writes and reads.
func TestBatchedReadsKeepData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		sent := make([]byte, 1<<20)
		for i := range sent {
			sent[i] = byte(random.Uint32())
		}
		c, other, _ := batchedPipe(t, 20*time.Millisecond)
		go func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(100_000))
				_, _ = other.Write(rest[:n])
				rest = rest[n:]
			}
			_ = other.Close()
		}()
		var got []byte
		for asks := rand.New(rand.NewPCG(3, 4)); ; {
			b := make([]byte, 1+asks.IntN(5000))
			n, err := c.Read(b)
			got = append(got, b[:n]...)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("error at the end of the data = %v, want EOF", err)
				}
				break
			}
		}
		if !bytes.Equal(got, sent) {
			t.Errorf("received %d bytes, want the %d sent", len(got), len(sent))
		}
	})
}

// kernel is a connection that buffers data until it is read, like a socket.
type kernel struct {
	net.Conn
	came  chan byte
	reads int
}

func (k *kernel) Read(b []byte) (int, error) {
	k.reads++
	n := 0
	for first, ok := <-k.came; ok; first, ok = <-k.came {
		b[n] = first
		if n++; len(k.came) == 0 || n == len(b) {
			return n, nil
		}
	}
	return n, io.EOF
}

// Small and frequent data is read once per gap, without further delay. Large data is read without a
// pause.
func TestReadFrequency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gap = 20 * time.Millisecond
		k := &kernel{came: make(chan byte, 1000)}
		config := BatchedReads(&rest.Config{Dial: func(context.Context, string, string) (net.Conn, error) { return k, nil }}, gap)
		c, err := config.Dial(t.Context(), "tcp", "api")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		go func() {
			for i := range 500 {
				time.Sleep(2 * time.Millisecond)
				k.came <- byte(i)
			}
			close(k.came)
		}()
		b := make([]byte, 100)
		for sent := 0; ; {
			n, err := c.Read(b)
			if err != nil {
				break
			}
			sent += n
			if late := time.Since(began) - time.Duration(sent)*2*time.Millisecond; late > gap {
				t.Errorf("byte %d is read %v late, want at most %v", sent, late, gap)
			}
		}
		if most := int(time.Since(began)/gap) + 2; k.reads > most {
			t.Errorf("%d reads in %v, want at most %d", k.reads, time.Since(began), most)
		}
		began = time.Now()
		c, other, reads := batchedPipe(t, gap)
		go func() {
			for range 100 {
				_, _ = other.Write(make([]byte, readSize))
			}
			_ = other.Close()
		}()
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("copy of large data failed: %v", err)
		}
		if took := time.Since(began); took > gap || *reads > 102 {
			t.Errorf("6.4 MB take %v and %d reads, want %v and 102", took, *reads, gap)
		}
	})
}
