"""The sets known by name: what they hold, whose they are, and where the public finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["texts", "images", "table"]


@dataclass(frozen=True)
class Home:
    """A public place of a set, and how its columns and splits are called there."""

    package: Literal["datasets", "scikit-learn"]
    """What fetches it."""
    address: str
    """A data set of the Hugging Face hub, or a function of ``sklearn.datasets``."""
    content: str = "text"
    """The column of texts or pictures."""
    label: str = "label"
    splits: Mapping[str, str] = field(default_factory=dict)
    """Splits that have another name there."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """Classes that have another name there, by that name."""
    strip: bool = False
    """Whether its texts have spaces at their ends that the set as we count it has not."""


@dataclass(frozen=True)
class DataSet:
    """One set."""

    name: str
    kind: Kind
    rows: Mapping[str, int]
    """The splits, and how many rows each has."""
    classes: tuple[str, ...]
    """Names of the labels 0, 1, ..."""
    licence: str
    attribution: str
    homes: tuple[Home, ...]
    """In the order in which they are tried."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Splits that lie in several files, SPLIT_0 to SPLIT_(n-1)."""
    shipped: bool = False
    """Whether it comes with this package, in a folder of its name beside this file, with an ATTRIBUTION.md."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(self.rows)

    def files(self, split: str) -> tuple[str, ...]:
        """What the data folder must hold for a split, relative to it."""
        if self.kind == "table":
            return (f"{self.name}/{self.name}.csv.gz",)
        if self.kind == "texts":
            return (f"{self.name}/{split}.parquet",)
        if split in self.parts:
            return tuple(f"{self.name}/{split}_{i}.npz" for i in range(self.parts[split]))
        return (f"{self.name}/{split}.npz",)


NEWSGROUPS = (
    "alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware comp.windows.x "
    "misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics sci.med "
    "sci.space soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc talk.religion.misc"
)
# in the order of their bytes, capitals first
INTENTS = (
    "Refund_not_showing_up activate_my_card age_limit apple_pay_or_google_pay atm_support automatic_top_up "
    "balance_not_updated_after_bank_transfer balance_not_updated_after_cheque_or_cash_deposit beneficiary_not_allowed "
    "cancel_transfer card_about_to_expire card_acceptance card_arrival card_delivery_estimate card_linking "
    "card_not_working card_payment_fee_charged card_payment_not_recognised card_payment_wrong_exchange_rate "
    "card_swallowed cash_withdrawal_charge cash_withdrawal_not_recognised change_pin compromised_card "
    "contactless_not_working country_support declined_card_payment declined_cash_withdrawal declined_transfer "
    "direct_debit_payment_not_recognised disposable_card_limits edit_personal_details exchange_charge exchange_rate "
    "exchange_via_app extra_charge_on_statement failed_transfer fiat_currency_support get_disposable_virtual_card "
    "get_physical_card getting_spare_card getting_virtual_card lost_or_stolen_card lost_or_stolen_phone "
    "order_physical_card passcode_forgotten pending_card_payment pending_cash_withdrawal pending_top_up "
    "pending_transfer pin_blocked receiving_money request_refund reverted_card_payment? "
    "supported_cards_and_currencies terminate_account top_up_by_bank_transfer_charge top_up_by_card_charge "
    "top_up_by_cash_or_cheque top_up_failed top_up_limits top_up_reverted topping_up_by_card "
    "transaction_charged_twice transfer_fee_charged transfer_into_account transfer_not_received_by_recipient "
    "transfer_timing unable_to_verify_identity verify_my_identity verify_source_of_funds verify_top_up "
    "virtual_card_not_working visa_or_mastercard why_verify_identity wrong_amount_of_cash_received "
    "wrong_exchange_rate_for_cash_withdrawal"
)
SENTIMENTS = ("negative", "positive")
NUMERALS = tuple("0123456789")

_ALL = (
    DataSet(
        name="20newsgroups",
        kind="texts",
        rows={"train": 11_314, "test": 7_532},
        classes=tuple(NEWSGROUPS.split()),
        licence="none stated",
        attribution="Ken Lang, NewsWeeder (1995); the by-date edition of Jason Rennie, messages with their headers",
        # scikit-learn gives the messages as they were sent; the hub's edition has, as far as we know, no headers
        homes=(Home("scikit-learn", "fetch_20newsgroups"),),
    ),
    DataSet(
        name="sst2",
        kind="texts",
        rows={"train": 67_349, "test": 872},
        classes=SENTIMENTS,
        licence="none stated",
        attribution="Socher et al., Recursive deep models (2013); GLUE's training and development sets",
        # GLUE keeps the labels of its test set to itself
        homes=(Home("datasets", "stanfordnlp/sst2", content="sentence", splits={"test": "validation"}, strip=True),),
    ),
    DataSet(
        name="imdb",
        kind="texts",
        rows={"train": 25_000, "test": 25_000},
        classes=SENTIMENTS,
        licence="none stated",
        attribution="Maas et al., Learning word vectors for sentiment analysis (2011)",
        homes=(Home("datasets", "stanfordnlp/imdb", classes={"neg": "negative", "pos": "positive"}),),
    ),
    DataSet(
        name="banking77",
        kind="texts",
        rows={"train": 10_003, "test": 3_080},
        classes=tuple(INTENTS.split()),
        licence="CC BY 4.0",
        attribution="Casanueva et al., Efficient intent detection with dual sentence encoders (2020), PolyAI",
        homes=(),
        shipped=True,
    ),
    DataSet(
        name="cifar10",
        kind="images",
        rows={"train": 50_000, "test": 10_000},
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        licence="none stated",
        attribution="Krizhevsky, Learning multiple layers of features from tiny images (2009)",
        homes=(Home("datasets", "uoft-cs/cifar10", content="img"),),
        parts={"train": 5},
    ),
    DataSet(
        name="mnist",
        kind="images",
        rows={"train": 60_000, "test": 10_000},
        classes=NUMERALS,
        licence="CC BY-SA 3.0",
        attribution="LeCun, Cortes and Burges",
        homes=(Home("datasets", "ylecun/mnist", content="image"),),
    ),
    DataSet(
        name="digits",
        kind="images",
        rows={"train": 1_797},
        classes=NUMERALS,
        licence="CC BY 4.0",
        attribution="Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI (1998)",
        homes=(Home("scikit-learn", "load_digits"),),
    ),
    DataSet(
        name="ucs_satellites",
        kind="table",
        rows={"train": 7_560},
        classes=("LEO", "MEO", "GEO", "Elliptical"),
        licence="free with attribution",
        attribution="Union of Concerned Scientists, UCS satellite database, edition of 2023",
        homes=(),
    ),
)
SETS: Mapping[str, DataSet] = {one.name: one for one in _ALL}
"""Every set, by name."""
