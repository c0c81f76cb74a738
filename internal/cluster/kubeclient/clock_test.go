package kubeclient

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Skew follows the Date header, within its tolerance.
func TestServerClock(t *testing.T) {
	for _, c := range []struct{ server, want time.Duration }{
		{0, 0}, {time.Hour, time.Hour}, {-time.Minute, -time.Minute},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(c.server).UTC().Format(http.TimeFormat))
		}))
		var d ServerClock
		if got := d.Skew(func(at time.Time) time.Time { return at }); got != 0 {
			t.Errorf("skew before any response = %v, want 0", got)
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
			t.Errorf("skew of a server that is %v ahead = %v, want %v", c.server, got, c.want)
		}
	}
}
