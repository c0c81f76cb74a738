package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
)

// Lines of a newer agent are passed over, what is none is not; and who speaks what is told and heard.
func TestTheClientFollowsRecords(t *testing.T) {
	for answer, want := range map[string]int{
		`{"record": {"id": "a"}}` + "\n" + `{"later": {"b": 1}}` + "\n" + `{"synced": true}` + "\n": 2,
		`{"record": {}}` + "\n": -1, `[]` + "\n": -1, "\n": -1,
	} {
		for minor, speaks := range map[string]int{"": 0, "1": 1, "2": 2, "x": 0, "70000": 0} {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get(HeaderMinor); got != strconv.Itoa(Minor) {
					t.Errorf("the client says that it speaks %q", got)
				}
				if minor != "" {
					w.Header().Set(HeaderMinor, minor)
				}
				_, _ = io.WriteString(w, answer)
			})
			n := 0
			err := c.FollowRecords(t.Context(), RecordsOptions{}, func(*RecordsLine) error { n++; return nil })
			if want < 0 && !errors.Is(err, ErrMalformed) || want >= 0 && (err != nil || n != want) || c.AgentMinor() != speaks {
				t.Errorf("%q of minor %q: %d lines, %v, minor %d", answer, minor, n, err, c.AgentMinor())
			}
		}
	}
}

func TestTheClientReadsRecords(t *testing.T) {
	for answer, want := range map[string]int{
		`{"records": []}`: 0,
		`{"records": [{"id": "a", "outcome": "back", "steps": [{"name": "kill"}], "later": 1}, {"id": "b"}], "later": 1}`: 2,
		`{}`: -1, `{"records": null}`: -1, `{"records": [null]}`: -1, `{"records": [{}]}`: -1, `{"records": {}}`: -1, `[]`: -1,
	} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/records" {
				t.Errorf("asked for %s", r.URL)
			}
			_, _ = io.WriteString(w, answer)
		})
		got, err := c.Records(t.Context())
		if want < 0 && (!errors.Is(err, ErrMalformed) || got != nil) || want >= 0 && (err != nil || len(got) != want) {
			t.Errorf("%s: %v, %v", answer, got, err)
		}
	}
}
