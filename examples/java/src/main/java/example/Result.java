package example;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.math.BigInteger;
import java.util.List;
import java.util.Locale;

/** What this program needs of a result. Keys it does not know do not matter to it. */
@JsonIgnoreProperties(ignoreUnknown = true)
record Result(
    @JsonProperty("stream_id") String streamId,
    BigInteger seq, // an unsigned number of 64 bits
    String status,
    List<Detection> detections) {

  /** A box is x1, y1, x2, y2 in pixels of the picture. */
  @JsonIgnoreProperties(ignoreUnknown = true)
  record Detection(String label, double score, double[] box) {
    @Override
    public String toString() {
      return String.format(
          Locale.ROOT,
          " %s %.2f [%.1f, %.1f, %.1f, %.1f]",
          label, score, box[0], box[1], box[2], box[3]);
    }
  }

  @Override
  public String toString() {
    StringBuilder line = new StringBuilder(streamId + " " + seq + " " + status);
    detections.forEach(line::append);
    return line.toString();
  }
}
