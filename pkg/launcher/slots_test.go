package launcher

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestSlots(t *testing.T) {
	s := make(slots, 1)
	end, err := s.begin("commands run")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.begin("commands run")
	if want := "1 commands run at once, which is the most; wait for one of them"; status.Code(err) !=
		codes.ResourceExhausted || status.Convert(err).Message() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	end()
	if _, err := s.begin("commands run"); err != nil {
		t.Error(err)
	}
}
