package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// run returns a run that leaks for 20 s, has a kill, and continues, with so many samples.
func run(looks int) *picture {
	p := &picture{Title: "a pod leaks", Victim: "default/leaker", Killed: 20 * time.Second, Told: []string{"crossed to killed 3.1 ms"}}
	for i := range looks {
		at := 30 * time.Second * time.Duration(i) / time.Duration(looks)
		available := int64(600*mib) - int64(at.Seconds()*25.3*mib)
		if at > p.Killed {
			available = 580 * mib
		}
		p.Samples = append(p.Samples, pictured{at, available})
	}
	return p
}

func svgOf(t *testing.T, p *picture) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.svg(&b); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			t.Fatalf("picture is not well-formed: %v in %s", err, b.String())
		}
	}
}

// maxPicture is the maximum size of a README's picture in bytes.
const maxPicture = 30_000

// The picture is well-formed and small for a run of any length, stays within its frame, and fetches
// nothing.
func TestThePicture(t *testing.T) {
	for _, looks := range []int{2, 120, 5000} {
		text := svgOf(t, run(looks))
		if len(text) > maxPicture {
			t.Errorf("picture of %d samples has %d bytes", looks, len(text))
		}
		if dir := os.Getenv("JETTISON_SHOTS"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("picture-%d.svg", looks)), []byte(text), 0o644); err != nil {
				t.Error(err)
			}
		}
		for _, want := range []string{"threshold 100Mi", "default/leaker killed", "crossed to killed 3.1 ms", "600Mi", "prefers-color-scheme:dark"} {
			if !strings.Contains(text, want) {
				t.Errorf("picture of %d samples lacks %q", looks, want)
			}
		}
		if strings.Contains(strings.Replace(text, "http://www.w3.org/2000/svg", "", 1), "http") || strings.Contains(text, "<script") {
			t.Error("the picture has a link or a script")
		}
		_, curve, _ := strings.Cut(text, `class="c" d="M`)
		curve, _, _ = strings.Cut(curve, `"`)
		for _, point := range strings.Split(curve, "L") {
			var at [2]float64
			for i, word := range strings.Fields(point) {
				at[i], _ = strconv.ParseFloat(word, 64)
			}
			if at[0] < left || at[0] > wide-right || at[1] < top || at[1] > high-bottom {
				t.Errorf("picture of %d samples: point %v is outside the frame", looks, at)
			}
		}
	}
}

// The lowest sample is drawn for any number of samples.
func TestThePictureHasTheLowest(t *testing.T) {
	p := run(5000)
	p.Samples[3001].Available = 3 * mib
	want := regexp.QuoteMeta(strconv.FormatFloat(math.Round(p.y(3*mib)*10)/10, 'f', 1, 64))
	if !regexp.MustCompile(` ` + want + `L`).MatchString(svgOf(t, p)) {
		t.Errorf("picture has no point at %s", want)
	}
}

// Names are escaped as text, and a run without samples is an error.
func TestThePictureOfWhatIsHostile(t *testing.T) {
	p := run(10)
	p.Victim, p.Title = `<script>"&`, `<b>`
	if text := svgOf(t, p); strings.Contains(text, "<script") || strings.Contains(text, "<b>") {
		t.Error(text)
	}
	if err := (&picture{}).svg(io.Discard); err == nil {
		t.Error("picture of no samples succeeds, want an error")
	}
}

// The README's picture comes from a real run: make demo, then cp bin/demo.svg docs/demo.svg.
func TestTheReadmesPicture(t *testing.T) {
	text, err := os.ReadFile("../../docs/demo.svg")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no picture yet: run make demo, then cp bin/demo.svg docs/demo.svg")
	}
	if err != nil || len(text) > maxPicture {
		t.Errorf("README's picture has %d bytes, %v", len(text), err)
	}
	if err := xml.Unmarshal(text, new(struct{ XMLName xml.Name })); err != nil {
		t.Error(err)
	}
}
