package kubeclient

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// What an answer says of the time counts, as far as clocks differ at all.
func TestDates(t *testing.T) {
	for _, c := range []struct{ server, want time.Duration }{
		{0, 0}, {time.Hour, time.Hour}, {-time.Minute, -time.Minute},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(c.server).UTC().Format(http.TimeFormat))
		}))
		var d ServerClock
		if got := d.Skew(func(at time.Time) time.Time { return at }); got != 0 {
			t.Errorf("before any answer: %v", got)
		}
		client, err := rest.HTTPClientFor(d.Track(&rest.Config{Host: s.URL}))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		s.Close()
		if got := d.Skew(func(at time.Time) time.Time { return at }); (got-c.want).Abs() > 2*time.Second || c.want == 0 && got != 0 {
			t.Errorf("%v: %v, want %v", c.server, got, c.want)
		}
	}
}
