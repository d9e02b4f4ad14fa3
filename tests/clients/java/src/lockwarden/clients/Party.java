package lockwarden.clients;

/**
 * Somebody who wants locks, with an owner token of its own: a client of a library, or a thread of one. Every
 * party is used from one thread only, because Redisson and Spring tell owners apart by it.
 */
interface Party extends AutoCloseable {
    /** What a library says to somebody who releases or extends. Errors of any other kind are thrown. */
    enum Answer {
        DONE,
        REFUSED,
        /** The library returns nothing and throws nothing, whatever came of it. */
        SILENT
    }

    /** Takes the lock if it comes free within the time to wait; 0 asks once. */
    boolean acquire(String name, long ttlMs, long waitMs) throws Exception;

    Answer release(String name) throws Exception;

    /** Makes the TTL this again, counted from now. */
    default Answer extend(String name, long ttlMs) throws Exception {
        throw new NotThere("it has none");
    }

    /** Takes a lock that the library itself renews until it is released. */
    default boolean acquireKept(String name) throws Exception {
        throw new NotThere("it has none");
    }

    @Override
    default void close() throws Exception {}

    /** The library has no such thing; the message says what. */
    final class NotThere extends RuntimeException {
        NotThere(String what) {
            super(what);
        }
    }
}
