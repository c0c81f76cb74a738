package output

import (
	"testing"
	"time"
)

func TestUnits(t *testing.T) {
	for got, want := range map[string]string{
		Bytes(10<<10 - 1):  "10Ki",
		Bytes(10 << 10):    "10Ki",
		Bytes(10 << 20):    "10Mi",
		Bytes(100<<30 - 1): "100Gi",
		Bytes(100 << 30):   "100Gi",
		Bytes(0):           "0",
		Bytes(1023):        "1023",
		Bytes(1536 << 20):  "1.5Gi",
		Bytes(1 << 63):     "8Ei",
		Span(59*time.Second + 600*time.Millisecond): "1m00s",
		Span(90 * time.Minute):                      "1h30m",
		Span(50 * time.Hour):                        "2d02h",
		"time " + Time(time.Time{}):                 "time -",
		Time(time.Unix(0, 0)):                       "1970-01-01T00:00:00Z",
	} {
		if got != want {
			t.Errorf("formatted value = %q, want %q", got, want)
		}
	}
}

// OneLine joins lines, and an empty cell has a dash.
func TestTexts(t *testing.T) {
	if OneLine(" a\n\tb  c\r\n") != "a b c" || OrDash("") != "-" || OrDash("x") != "x" {
		t.Error("OneLine or OrDash returned a wrong text")
	}
}
