package frames

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
	"time"
)

// BenchmarkReplay reads, decides and writes a frame of 110 pods with two containers each. The
// values of ten frames repeat: in one half nothing is short; in the other memory is short in every
// frame, so that a pod is evicted.
func BenchmarkReplay(b *testing.B) {
	for _, name := range []string{"calm", "short", "packed"} {
		short := name == "short"
		b.Run(name, func(b *testing.B) {
			const frames = 200
			var text bytes.Buffer
			at := epoch
			for i := range frames {
				at = at.Add(10 * time.Second)
				s := node110(at, 110)
				if short {
					s.Node.Memory.KernelAvailableBytes = some(50 << 20)
				}
				l := Input{Time: at, Summary: s, Node: "node"}
				if i == 0 {
					l.Pods = objects110(s)
				}
				f := FromLook(l)
				if i > 0 {
					f.objects = nil
				}
				text.Write(line(b, f))
			}
			c, size := policy(b, ""), text.Len()
			if name == "packed" {
				text = *packed(b, text.Bytes())
			}
			n := 0
			for b.Loop() {
				r, err := NewReader(bytes.NewReader(text.Bytes()), "bench")
				if err != nil {
					b.Fatal(err)
				}
				if err := Run(b.Context(), c, r, io.Discard); err != nil {
					b.Fatal(err)
				}
				n += frames
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "frames/s")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/frame")
			b.ReportMetric(float64(size)/frames/1000, "KB/frame")
		})
	}
}

// packed returns text with each line compressed separately.
func packed(b *testing.B, text []byte) *bytes.Buffer {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
		if _, err := w.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	return &out
}

// BenchmarkRecord measures the time of the recorder's goroutine per frame, and the size of a frame.
func BenchmarkRecord(b *testing.B) {
	r, err := NewRecorder(b.TempDir()+"/frames", func(Notice) {})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = r.Close(time.Minute) }()
	s := node110(epoch, 110)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.encode(FromLook(Input{Time: epoch, Summary: s}), false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(r.buf.Len()), "bytes/frame")
}
