package api

import (
	"errors"
	"io"
	"net/http"
	"testing"
)

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
