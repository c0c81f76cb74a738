package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
)

// FollowRecords skips unknown kinds of lines and rejects malformed ones. Both sides exchange their
// minor versions.
func TestClientFollowsRecords(t *testing.T) {
	for answer, want := range map[string]int{
		`{"record": {"id": "a"}}` + "\n" + `{"later": {"b": 1}}` + "\n" + `{"synced": true}` + "\n": 2,
		`{"record": {}}` + "\n": -1, `[]` + "\n": -1, "\n": -1,
	} {
		for header, wantMinor := range map[string]int{"": 0, "1": 1, "2": 2, "x": 0, "70000": 0} {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get(HeaderMinor); got != strconv.Itoa(Minor) {
					t.Errorf("%s of the request = %q, want %d", HeaderMinor, got, Minor)
				}
				if header != "" {
					w.Header().Set(HeaderMinor, header)
				}
				_, _ = io.WriteString(w, answer)
			})
			n := 0
			err := c.FollowRecords(t.Context(), RecordsOptions{}, func(*RecordsLine) error { n++; return nil })
			if want < 0 && !errors.Is(err, ErrMalformed) || want >= 0 && (err != nil || n != want) || c.AgentMinor() != wantMinor {
				t.Errorf("answer %q with minor %q: %d lines, error %v, AgentMinor() %d; want %d lines (-1: malformed), %d",
					answer, header, n, err, c.AgentMinor(), want, wantMinor)
			}
		}
	}
}

func TestClientReadsRecords(t *testing.T) {
	for answer, want := range map[string]int{
		`{"records": []}`: 0,
		`{"records": [{"id": "a", "outcome": "back", "steps": [{"name": "kill"}], "later": 1}, {"id": "b"}], "later": 1}`: 2,
		`{}`: -1, `{"records": null}`: -1, `{"records": [null]}`: -1, `{"records": [{}]}`: -1, `{"records": {}}`: -1, `[]`: -1,
	} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/records" {
				t.Errorf("request path = %s, want /v1/records", r.URL)
			}
			_, _ = io.WriteString(w, answer)
		})
		got, err := c.Records(t.Context())
		if want < 0 && (!errors.Is(err, ErrMalformed) || got != nil) || want >= 0 && (err != nil || len(got) != want) {
			t.Errorf("Records() for answer %s = %v, %v, want %d records (-1: malformed)", answer, got, err, want)
		}
	}
}
