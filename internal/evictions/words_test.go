package evictions

import (
	"encoding/json"
	"testing"

	"jettison/stats"
)

// A request that is known as a range is told as one.
func TestARankingTellsBothBoundsOfARequest(t *testing.T) {
	for want, request := range map[string]stats.Opt[stats.Range]{
		`{"pod":"a/b","qos":"","usage":5,"request":7}`:                   stats.Some(stats.Exactly(7)),
		`{"pod":"a/b","qos":"","usage":5,"request":0}`:                   stats.Some(stats.Range{}),
		`{"pod":"a/b","qos":"","usage":5,"request":7,"requestMax":9}`:    stats.Some(stats.Range{Min: 7, Max: 9}),
		`{"pod":"a/b","qos":"","usage":5,"request":-1}`:                  {},
		`{"pod":"a/b","qos":"","usage":5,"request":0,"requestMax":1024}`: stats.Some(stats.Range{Max: 1024}),
	} {
		r := row{Pod: "a/b", Usage: 5}
		r.requests(request)
		if got, err := json.Marshal(r); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	r := row{Pod: "a/b", QOS: "Burstable", Usage: 8, Request: 7, RequestMax: 9, DecidedBy: "UID"}
	if got := r.String(); got != "a/b(Burstable usage=8 request=7..9 UID)" {
		t.Errorf("got %s", got)
	}
}
